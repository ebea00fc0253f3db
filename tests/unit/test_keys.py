"""The names of keys: each under the prefix, each its own, each with its type said."""

import inspect

import pytest
from ghostless.jobs.keys import Keys, script_names
from rq.job import Job
from rq.queue import Queue

KEYS = Keys("team:")
PUBLIC = {name: member for name, member in inspect.getmembers(Keys) if not name.startswith("_") and name != "prefix"}
SINGLE = sorted(name for name, member in PUBLIC.items() if isinstance(member, property))
BY_ID = sorted(PUBLIC.keys() - set(SINGLE))


def test_no_two_names_are_the_same_or_run_into_each_other() -> None:
    """No name is another one, and no id can make one family's name into another's."""
    names = [getattr(KEYS, name) for name in SINGLE] + [
        getattr(KEYS, name)("") for name in BY_ID if name not in ("rq_intermediate", "rq_worker_executions")
    ]
    assert len(set(names)) == len(names)
    beginnings = [name for name in names if name.endswith(":")]
    assert [] == [(one, other) for one in beginnings for other in names if other != one and other.startswith(one)]


@pytest.mark.parametrize("name", [*SINGLE, *BY_ID])
def test_every_name_says_its_redis_type(name: str) -> None:
    """The docstring begins with the type of the key."""
    kind = (inspect.getdoc(PUBLIC[name]) or "").partition(":")[0]
    assert kind in (
        "hash",
        "list",
        "zset",
        "string",
        "string with TTL",
        "stream",
        "set",
        "pub/sub channel",
        "any with TTL",
    )


@pytest.mark.parametrize("name", [*SINGLE, *BY_ID])
def test_every_name_but_rqs_is_under_the_prefix(name: str) -> None:
    """Several teams can share a Redis."""
    member = getattr(KEYS, name)
    text = member if isinstance(member, str) else member("x")
    assert text.startswith("rq:" if name.startswith("rq_") else "team:")


def test_rqs_names_are_those_of_rq() -> None:
    """They are taken from rq, so that an update of rq cannot part us from it unseen."""
    assert KEYS.rq_queue("gpu") == f"{Queue.redis_queue_namespace_prefix}gpu"
    assert KEYS.rq_job("t1") == Job.key_for("t1")


def test_scripts_get_names_that_need_only_their_id() -> None:
    """What is rendered is the beginning of what Python builds, for every name that both know."""
    names = script_names(KEYS)
    for name in names.keys() & set(BY_ID):
        assert names[name] + "x7" == getattr(KEYS, name)("x7")
    for name in names.keys() & set(SINGLE):
        assert names[name] == getattr(KEYS, name)
