"""The loader: one table and one list of names, rendered before every script."""

import pickle
import re
from dataclasses import replace

import pytest
from ghostless.jobs.keys import Keys, script_names
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Upkeep
from ghostless.lua import VERBS, loader, render_all
from ghostless.lua.definitions import definitions
from ghostless.statemachine import TABLE, Event, State
from redis import Redis
from redis_server import RedisServer
from rq.job import Job
from scripts.seeding import CLAIM, ID, claimed, submission

NAMES = script_names(Keys())


def texts(names: dict[str, str] = NAMES) -> dict[str, str]:
    """Return each script, by the text whose SHA is what Redis knows it by."""
    return render_all(names)


@pytest.mark.parametrize(
    ("name", "value", "rendered", "users"),
    [
        ("TABLE", {**TABLE, (State.SUCCESS, Event.START): State.PROCESSING}, "MOVES", {"finish", "claim", "heartbeat"}),
        ("ALREADY", frozenset(), "ALREADY", {"finish", "heartbeat", "cancel"}),
        ("FINAL", frozenset({State.SUCCESS}), "FINAL", {"finish", "submit", "purge"}),
        ("RUNNING", frozenset({State.PROCESSING}), "RUNNING", {"finish", "claim", "sweep"}),
        ("BUDGETS", {"failures": "max_losses"}, "BUDGETS", {"finish", "sweep", "lose"}),
        ("TICKET_FUNCTION", "another.function", "TICKET", {"submit", "finish", "requeue", "unpark"}),
        ("VALUES", ("params",), "VALUES", {"purge", "repair", "patrol"}),
        ("WAKE_HINTS", 7, "WAKE_HINTS", {"submit", "finish", "resume"}),
    ],
)
def test_a_changed_table_changes_every_script_that_looks_at_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, rendered: str, users: set[str]
) -> None:
    """A process with an old table never runs a script with a new one."""
    before = texts()
    monkeypatch.setattr(loader, name, value)
    changed = {verb for verb, text in texts().items() if text != before[verb]}
    assert users <= changed
    assert changed == {verb for verb, text in before.items() if re.search(rf"\b{rendered}\b", text)}


def test_another_prefix_changes_every_script_with_a_key_of_ours() -> None:
    """Two teams on one Redis have scripts of their own."""
    shared = set(texts().values()) & set(texts(script_names(Keys(prefix="other:"))).values())
    assert [] == [text for text in shared if "ghostless:" in text]
    assert len(shared) < 6


def test_rendering_is_the_same_in_every_process() -> None:
    """Sets are sorted, so that two processes of one version share their scripts."""
    assert texts() == texts()
    sets = [line for line in loader.prelude(NAMES) if "]=true" in line]
    assert [sorted(line.split("{")[1].rstrip("}").split(", ")) for line in sets] == [
        line.split("{")[1].rstrip("}").split(", ") for line in sets
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_defines_nothing_that_it_does_not_use(verb: str) -> None:
    """Redis makes every table and function anew at each call. What is missing, Redis refuses to look for."""
    text = texts()[verb]
    for piece in definitions(text):
        beginning = piece.partition("\n")[0]
        names = re.match(r"(?:local )?(?:function )?(\w+(?:, \w+)*)", beginning)[1].replace(", ", "|")  # type: ignore[index]
        assert re.search(rf"\b({names})\b", text.replace(beginning, "", 1)), f"nobody uses {names}"


def test_the_definitions_stand_in_the_order_in_which_they_build_on_each_other() -> None:
    """Prelude, parts, verb: Lua knows a local only behind its definition."""
    text = texts()["finish"]
    places = [
        text.index(name) for name in ("local MOVES", "function commit", "function end_badly", "local ENDS_ATTEMPT")
    ]
    assert sorted(places) == places


def test_names_are_put_in_place() -> None:
    """A script looks up no name of a state, event, reason or key at each call."""
    for verb, text in texts().items():
        assert [] == re.findall(r"\b(?:State|Event|Reason|key)\.\w+", text), verb


def test_a_name_that_is_not_there_is_an_error() -> None:
    """It does not become nil in a script that runs for weeks."""
    with pytest.raises(KeyError, match="State.NOWHERE"):
        loader.build("return State.NOWHERE", NAMES)


def test_an_unknown_part_is_an_error() -> None:
    """A name that is no file does not become an empty script."""
    with pytest.raises(FileNotFoundError):
        loader.source("nothing")


def test_prelude_lists_the_names_of_every_member(redis: Redis) -> None:
    """Lua's State, Event and Reason have what Python's have, and a name that is not there is nil."""
    body = "local all = {} for name, value in pairs(State) do all[#all + 1] = name .. value end return all"
    text = loader.build("return {State.PENDING, Event.GIVE_UP, Reason.CRASHED}", NAMES)
    assert ["PENDING", "GIVE_UP", "crashed"] == redis.eval(text, 0)
    assert sorted(state.name + state for state in State) == sorted(redis.eval(loader.build(body, NAMES), 0))


@pytest.mark.parametrize(
    "prefix", ['te"am:', "back\\slash:", "it's:", "a]]b:", "--x:", "{tag}:", "key.task:", "State.X:"]
)
def test_an_odd_prefix_is_quoted(redis: Redis, prefix: str) -> None:
    """Any prefix that the settings allow works, and every key stands under it."""
    store = Store(redis, Settings(prefix=Settings.from_environment({"GHOSTLESS_PREFIX": prefix}).prefix))
    store.submit(submission())
    held = claimed(store).held
    assert ID == held.task_id
    assert [] == [key for key in redis.scan_iter() if not key.startswith((prefix, "rq:"))]
    assert "PROCESSING" == redis.hget(f"{prefix}task:{ID}", "state")
    redis.delete(store.keys.deadlines)
    assert 1 == Upkeep(store).compare([ID], actor="tester").moved  # which builds names of keys from other names


def test_two_prefixes_do_not_see_each_other(redis: Redis) -> None:
    """The same id under two prefixes is two tasks. Queues are rq's, so their names must differ."""
    for prefix, queue in (("one:", "a"), ("other:", "b")):
        store = Store(redis, Settings(prefix=prefix))
        assert "moved" == store.submit(replace(submission(ID), queue=queue)).word
        store.cancel(ID, "tester")
    assert {"one:task:t1", "other:task:t1"} == set(redis.scan_iter(match="*task:*"))


def test_a_ticket_is_one_constant_call_that_rq_can_read(redis: Redis, redis_server: RedisServer, store: Store) -> None:
    """rq finds a function without arguments, no time-out and no result to keep; no data of the task is pickled."""
    store.submit(submission())
    assert (loader.TICKET_FUNCTION, None, (), {}) == pickle.loads(redis.hget(store.keys.rq_job(ID), "data").encode())
    with Redis(unix_socket_path=str(redis_server.socket)) as raw:
        job = Job.fetch(ID, connection=raw)
        assert (loader.TICKET_FUNCTION, (), {}) == (job.func_name, job.args, job.kwargs)
        assert ("q", -1, 0) == (job.origin, job.timeout, job.result_ttl)
    assert ID == claimed(store, CLAIM).held.task_id
