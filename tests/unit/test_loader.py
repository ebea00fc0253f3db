"""The loader: one table and one list of names, rendered before every script."""

import hashlib
import pickle
from dataclasses import replace
from types import MappingProxyType

import pytest
from ghostless.jobs.keys import Keys, script_names
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.lua import VERBS, loader, render
from ghostless.statemachine import TABLE, Event, State
from redis import Redis
from redis_server import RedisServer
from rq.job import Job
from scripts.seeding import CLAIM, ID, claimed, submission

NAMES = script_names(Keys())


def shas(names: dict[str, str] = NAMES) -> dict[str, str]:
    """Return the SHA under which Redis would know each script."""
    return {verb: hashlib.sha1(render(verb, names).encode()).hexdigest() for verb in VERBS}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLE", MappingProxyType({**TABLE, (State.SUCCESS, Event.START): State.PROCESSING})),
        ("ALREADY", frozenset()),
        ("FINAL", frozenset({State.SUCCESS})),
        ("RUNNING", frozenset({State.PROCESSING})),
        ("BUDGETS", {"failures": "max_losses"}),
        ("TICKET_FUNCTION", "another.function"),
        ("VALUES", ("params",)),
        ("WAKE_HINTS", 7),
    ],
)
def test_a_changed_table_changes_every_sha(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    """A process with an old table never runs a script with a new one."""
    before = shas()
    monkeypatch.setattr(loader, name, value)
    assert set() == set(before.values()) & set(shas().values())


def test_another_prefix_changes_every_sha() -> None:
    """Two teams on one Redis have scripts of their own."""
    assert set() == set(shas().values()) & set(shas(script_names(Keys(prefix="other:"))).values())


def test_rendering_is_the_same_in_every_process() -> None:
    """Sets are sorted, so that two processes of one version share their scripts."""
    assert shas() == shas()
    sets = [line for line in loader.prelude(NAMES).splitlines() if "]=true" in line]
    assert [sorted(line.split("{")[1].rstrip("}").split(", ")) for line in sets] == [
        line.split("{")[1].rstrip("}").split(", ") for line in sets
    ]


def test_a_script_begins_with_the_prelude_and_ends_with_its_verb() -> None:
    """The parts stand in the order in which they build on each other."""
    for verb in VERBS:
        text = render(verb, NAMES)
        assert text.startswith(loader.prelude(NAMES))
        assert text.endswith(loader.source(verb))
        assert 1 == text.count(loader.source("transition"))


def test_an_unknown_part_is_an_error() -> None:
    """A name that is no file does not become an empty script."""
    with pytest.raises(FileNotFoundError):
        loader.source("nothing")


def test_prelude_lists_the_names_of_every_member(redis: Redis) -> None:
    """Lua's State, Event and Reason have what Python's have, and a name that is not there is nil."""
    text = loader.prelude(NAMES) + "\nreturn {State.PENDING, Event.GIVE_UP, Reason.CRASHED, State.NOWHERE or 'nil'}"
    assert ["PENDING", "GIVE_UP", "crashed", "nil"] == redis.eval(text, 0)


@pytest.mark.parametrize("prefix", ['te"am:', "back\\slash:", "it's:", "a]]b:", "-- x:".replace(" ", ""), "{tag}:"])
def test_an_odd_prefix_is_quoted(redis: Redis, prefix: str) -> None:
    """Any prefix that the settings allow works, and every key stands under it."""
    store = Store(redis, Settings(prefix=Settings.from_environment({"GHOSTLESS_PREFIX": prefix}).prefix))
    store.submit(submission())
    held = claimed(store).held
    assert ID == held.task_id
    assert [] == [key for key in redis.scan_iter() if not key.startswith((prefix, "rq:"))]
    assert "PROCESSING" == redis.hget(f"{prefix}task:{ID}", "state")


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
