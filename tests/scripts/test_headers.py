"""Each script's header against its body and against what it really answers; what must not be typed in Lua."""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files

import pytest
from ghostless.jobs.bulk_actions import RUNNING, BulkActions
from ghostless.jobs.errors import GhostlessError
from ghostless.jobs.keys import Keys, script_names
from ghostless.lua import SHARED, VERBS, loader
from ghostless.statemachine import STORED, Event, Policy, Reason, State
from redis import Redis
from scripts.seeding import (
    ALL,
    BEGIN_BULK,
    BULK,
    CARRIERS,
    ID,
    PURGE,
    QUEUE,
    RECHECK,
    SETTLE,
    STOP_BULK,
    TYPE,
    Carrier,
    Scene,
    begin_bulk,
    finish,
    make_outdated,
    put,
    scene,
    submission,
    wish,
)

PLACE = re.compile(r"\b(KEYS|ARGV)\[(\d+)(\.\.n)?\]")
WORDS = {
    "moved",
    "already",
    "refused",
    "stale",
    "missing",
    "conflict",
    "purged",
    "unknown",
    "unserved",
    "claimed",
    "batch",
    "plain",
    "empty",
    "suspended",
    "more",
}
BATCH = {
    *("unpark", "release", "sweep", "requeue", "settle", "recheck", "purge"),
    *("repair", "patrol", "prune", "unnamed", "recount", "work_bulk"),
}
OF_NO_TASK = {"subscribe", "listen", "dismiss", "dispatch", "revise", "note_worker"}


def header(part: str) -> str:
    """Return the comment that a file begins with."""
    return "\n".join(re.match(r"(?:--.*\n)+", loader.source(part)).group().splitlines())  # type: ignore[union-attr]


def body(part: str) -> str:
    """Return a file's text without comments."""
    return re.sub(r"--.*", "", loader.source(part))


def section(verb: str, name: str) -> str:
    """Return what a header says after `returns` or `appends`, further lines included."""
    found = re.search(rf"^-- {name} (.*(?:\n--  +.*)*)", header(verb), re.MULTILINE)
    assert found, f"{verb}.lua does not say what it {name}"
    return found.group(1)


def test_every_file_is_a_verb_or_a_shared_part() -> None:
    """The loader knows each Lua file, and each name it knows is a file."""
    names = {
        entry.name.removesuffix(".lua") for entry in files("ghostless.lua").iterdir() if entry.name.endswith(".lua")
    }
    assert {*VERBS, *SHARED} == names


@pytest.mark.parametrize("part", [*VERBS, *SHARED])
def test_the_first_line_says_what_the_file_is_for(part: str) -> None:
    """A sentence, with its full stop, before anything else."""
    first = header(part).splitlines()[0]
    assert re.fullmatch(r"-- [A-Z].*[.:]", first) or header(part).splitlines()[1].endswith("."), first


@pytest.mark.parametrize("part", [*VERBS, *SHARED])
def test_no_line_is_longer_than_one_of_python_may_be(part: str) -> None:
    """120 characters; ruff does not look at Lua."""
    assert [] == [line for line in loader.source(part).splitlines() if len(line) > 120]


@pytest.mark.parametrize("verb", VERBS)
def test_every_key_and_argument_is_described(verb: str) -> None:
    """What the header describes is what the body reads, number by number."""
    described = {(kind, int(number), bool(more)) for kind, number, more in PLACE.findall(header(verb))}
    text = body(verb)
    read = {(kind, int(number), False) for kind, number in re.findall(r"\b(KEYS|ARGV)\[(\d+)\]", text)}
    read |= {(kind, 1, True) for kind in re.findall(r"ipairs\((KEYS|ARGV)\)", text)}
    read |= {(kind, int(number), True) for number, kind in re.findall(r"for \w+ = (\d+), #(KEYS|ARGV)", text)}
    assert described == read
    for kind in ("KEYS", "ARGV"):
        numbers = sorted(number for name, number, _ in described if name == kind)
        assert numbers == list(range(1, len(numbers) + 1)), f"a gap in the numbers of {kind}"


@pytest.mark.parametrize("verb", VERBS)
def test_keys_are_described_with_their_type(verb: str) -> None:
    """Each KEYS line names a Redis type and a key."""
    lines = [line for line in header(verb).splitlines() if line.startswith("-- KEYS")]
    assert [line for line in lines if re.match(r"-- KEYS\[\S+\] (hash|list|zset|string|stream)\s+\S+", line)] == lines


@pytest.mark.parametrize("verb", VERBS)
def test_keys_and_arguments_are_named_in_the_first_lines(verb: str) -> None:
    """A number in KEYS[...] or ARGV[...] stands in a local of the first block and nowhere else."""
    first_block, _, rest = loader.source(verb).removeprefix(header(verb)).lstrip("\n").partition("\n\n")
    assert not re.search(r"\b(KEYS|ARGV)\[\d", re.sub(r"--.*", "", rest))
    lines = [line for line in first_block.splitlines() if re.search(r"\b(KEYS|ARGV)\[\d", line)]
    assert [line for line in lines if line.startswith("local ")] == lines


@pytest.mark.parametrize("part", SHARED)
def test_shared_parts_get_what_they_need_from_their_callers(part: str) -> None:
    """A part that several verbs use cannot know their numbers."""
    assert not re.search(r"\b(KEYS|ARGV)\b", body(part))


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_holds_the_parts_that_it_uses_and_no_others(verb: str) -> None:
    """Each part named by `uses` defines something that the verb, or another of its parts, calls."""
    uses = re.search(r"^-- uses (.+)$", loader.source(verb), re.MULTILINE)
    parts = uses.group(1).split(", ") if uses else []
    assert set(parts) <= set(SHARED)
    for part in parts:
        defined = re.findall(r"^local function (\w+)", loader.source(part), re.MULTILINE)
        others = "\n".join(body(other) for other in (*parts, verb) if other != part)
        assert [name for name in defined if re.search(rf"\b{name}\(", others)], f"{verb} does not need {part}"


@pytest.mark.parametrize("part", [*VERBS, *SHARED])
def test_no_name_of_the_table_or_of_a_key_is_typed_in_lua(part: str) -> None:
    """States, events, reasons and key names come from the prelude, where a changed one changes every script."""
    literals = re.findall(r'"((?:[^"\\]|\\.)*)"', body(part))
    assert [] == [text for text in literals if text in {*State, *Event}]
    # "policy" is also the name of a field and of the actor who decides by it.
    assert [] == [text for text in literals if text in {*Reason} - {Reason.POLICY}]
    prefixes = [name for name in script_names(Keys(prefix="")).values() if name.endswith(":")]
    assert [] == [text for text in literals for prefix in prefixes if text.startswith(prefix)]
    assert [] == [text for text in literals if text.startswith(("rq:", "ghostless:"))]


def situations(stage: Scene) -> Iterator[Carrier]:
    """Yield every call in every state, by its owner, by a stranger and on nothing; and what is special."""
    for carrier in ALL:
        for state in STORED:
            stage.start_over()
            put(stage, state)
            carrier.prepare(stage)
            yield carrier
        stage.start_over()
        stage.held = replace(put(stage, State.PROCESSING), token="another")
        yield carrier
        stage.start_over()
        yield carrier
    yield from special(stage)


def special(stage: Scene) -> Iterator[Carrier]:
    """Yield the calls whose answers no state of a task brings about."""
    redis, keys = stage.redis, stage.keys
    submit, claim = CARRIERS[Event.SUBMIT][0], CARRIERS[Event.START][0]
    stage.start_over()
    put(stage, State.CANCELLED)
    make_outdated(stage)
    stage.store.purge()
    yield submit
    stage.start_over()
    yield submit
    yield Carrier("submit", lambda s: s.store.submit(replace(submission(), fingerprint="another")))
    redis.set("rq:suspended", 1)
    yield claim
    redis.delete("rq:suspended")
    redis.lpush(keys.rq_queue(QUEUE), "plain")
    redis.hset(keys.rq_job("plain"), "origin", QUEUE)
    yield claim
    redis.delete(keys.claim("w2"))
    redis.lpush(keys.rq_queue(QUEUE), *(f"gone{number}" for number in range(100)))
    yield claim
    stage.start_over()
    stage.store.submit_many([submission("t1"), submission("t2")])
    yield Carrier("claim", lambda s: s.store.claim(replace(wish("w1", "cc"), together=((TYPE, 2),))))
    for event in (Event.TIMEOUT, Event.FAIL):
        stage.start_over()
        put(stage, State.PROCESSING, replace(Policy(), max_retries=0, max_timeouts=0))
        yield Carrier("finish", lambda s, event=event: finish(s, event, claim=wish("w1", "dd")))
    for taking_away in CARRIERS[Event.TIMEOUT][1:]:
        stage.start_over()
        put(stage, State.PROCESSING, replace(Policy(), max_losses=0))
        stage.store.submit(submission("t2", depends_on=(ID,)))
        taking_away.prepare(stage)
        yield taking_away
    yield from special_dependencies(stage)
    yield from special_bulk_actions(stage)


def special_dependencies(stage: Scene) -> Iterator[Carrier]:
    """Yield the calls that tell other tasks how the one that they wait for ended, and a submit that cannot wait."""
    for event in (Event.COMPLETE, Event.FAIL):
        end = Carrier("finish", lambda s, event=event: finish(s, event, retryable=False))
        for left_to in (None, SETTLE, RECHECK, PURGE):
            stage.start_over()
            put(stage, State.PROCESSING)
            stage.store.submit(submission("t2", depends_on=(ID,)))
            if left_to is None:
                yield end
            else:
                stage.redis.hdel(stage.keys.task(ID), "dependents")
                end.call(stage)
                stage.redis.hset(stage.keys.task(ID), "dependents", 1)
                stage.redis.zadd(stage.keys.settling, {ID: 0})
                make_outdated(stage)
                yield left_to
    yield Carrier("submit", lambda s: s.store.submit(submission("t3", depends_on=("nobody",))))
    yield Carrier("submit", lambda s: s.store.submit(submission("t3", callback_url="https://example.com/")))
    stage.start_over()
    put(stage, State.FAILED)
    yield Carrier("submit", lambda s: s.store.submit(submission("t4", depends_on=(ID,))))


def special_bulk_actions(stage: Scene) -> Iterator[Carrier]:
    """Yield the calls that meet a bulk action which is there already, or too many."""
    stage.start_over()
    begin_bulk(stage)
    yield BEGIN_BULK
    yield Carrier("begin_bulk", lambda s: BulkActions(s.store).begin(replace(BULK, limit=1)))
    yield STOP_BULK
    yield STOP_BULK
    for number in range(RUNNING + 1):
        yield Carrier(
            "begin_bulk", lambda s, key=str(number): BulkActions(s.store).begin(replace(BULK, idempotency_key=key))
        )


@pytest.fixture(scope="module")
def observed(redis_server) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The words that each verb answered, and the events that it appended, over all situations."""
    words: dict[str, set[str]] = defaultdict(set)
    events: dict[str, set[str]] = defaultdict(set)
    with Redis(unix_socket_path=str(redis_server.socket), decode_responses=True, protocol=2) as redis:
        stage = scene(redis)
        for carrier in situations(stage):
            before = dict(redis.xrange(stage.keys.history))
            with suppress(GhostlessError):
                carrier.call(stage)
            if carrier.verb not in BATCH:
                words[carrier.verb].add(stage.store.word)
            after = dict(redis.xrange(stage.keys.history))
            events[carrier.verb] |= {after[entry_id]["event"] for entry_id in after.keys() - before.keys()}
        redis.flushall()
    return words, events


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in BATCH | OF_NO_TASK])
def test_a_verb_answers_with_the_words_that_its_header_lists(verb: str, observed: tuple) -> None:
    """In every situation of the grid: no other word, and none that never comes."""
    listed = WORDS & set(re.findall(r"(?:^|[|(]) *([a-z]+)", section(verb, "returns")))
    assert listed == observed[0][verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_appends_the_events_that_its_header_lists(verb: str, observed: tuple) -> None:
    """In every situation of the grid: no other event, and none that never comes."""
    listed = {*Event} & set(re.findall(r"[A-Z_]+", section(verb, "appends")))
    if "the event" in section(verb, "appends"):
        listed |= {*Event} & set(re.findall(r"[A-Z_]+", header(verb).partition("ARGV[9..n] ")[2].splitlines()[0]))
    assert listed == observed[1][verb]
