"""Every process that runs on looks at Redis when it starts: what would lose tasks is refused, what may is a warning."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.settings import Settings
from helpers import eventually, expect, run_command
from redis import Redis
from redis_server import evicting

VERBS = {
    "worker": (("q", "--tasks", "handlers"), "ghostless:types"),
    "watchdog": ((), "ghostless:watchdog"),
    "serve": (("--port", "0"), "ghostless:watchdog"),
    "scheduler": ((), "rq:scheduler_instance:*"),
    "listener": (("--handlers", "reactions"), "ghostless:listener:*"),
}
"""What each needs to start, and the keys that it writes once it is at work."""

WARNINGS = ("it evicts keys when memory is short", "IT KEEPS NOTHING OVER A RESTART")

each_verb = pytest.mark.parametrize("verb", VERBS)

Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def fleet(redis: Redis, settings: Settings, tmp_path: Path) -> Iterator[Fleet]:
    """Processes on the Redis of the tests, which keeps nothing."""
    running = Fleet(settings.redis_url, tmp_path)
    yield running
    assert [] == running.end()


@pytest.fixture
def ask(fleet: Fleet) -> Ask:
    """Run the command line to its end; return its exit code and what it printed."""
    return lambda *arguments, **variables: run_command(*arguments, environment=fleet.surroundings | variables)


@each_verb
def test_a_redis_that_evicts_is_refused(ask: Ask, redis: Redis, verb: str) -> None:
    """With exit code 1 and what to do."""
    with evicting(redis):
        code, shown = ask(verb, *VERBS[verb][0])
    assert 1 == code, shown
    assert "maxmemory-policy noeviction, or start with --allow-eviction" in shown


@each_verb
def test_who_allows_it_is_only_warned(fleet: Fleet, redis: Redis, verb: str) -> None:
    """Of that, and in capitals of a Redis that keeps nothing; then it runs on, until it is told to stop."""
    options, written = VERBS[verb]
    with evicting(redis):
        process = fleet.start(verb, *options, "--allow-eviction")
        eventually(lambda: expect(list(redis.scan_iter(written))), seconds=20)
    told = " ".join(fleet.logs().split())
    assert [] == [warning for warning in WARNINGS if f"Redis: {warning}" not in told]
    process.terminate()
    assert 0 == process.wait(timeout=20)


def test_it_may_be_allowed_by_the_environment(ask: Ask, redis: Redis) -> None:
    """For whom it is no place for options."""
    with evicting(redis):
        code, shown = ask("scheduler", "--burst", GHOSTLESS_ALLOW_EVICTION="1")
    assert 0 == code, shown
    assert [] == [warning for warning in WARNINGS if f"Redis: {warning}" not in shown]


def test_the_doctor_tells_of_eviction(ask: Ask, redis: Redis) -> None:
    """Also when it was switched on after everything had started."""
    with evicting(redis):
        code, shown = ask("doctor")
    assert 1 == code
    assert "Redis: refused: it evicts keys" in shown
    assert "Redis: warning: IT KEEPS NOTHING OVER A RESTART" in shown


def test_a_server_that_tells_nothing_of_itself_is_taken(ask: Ask, redis: Redis, settings: Settings) -> None:
    """A managed Redis forbids INFO and CONFIG: that is no reason to refuse it."""
    redis.acl_setuser(
        "tenant",
        enabled=True,
        passwords=["+secret"],
        keys=["*"],
        channels=["*"],
        commands=["+@all", "-info", "-config"],
    )
    try:
        url = settings.redis_url.replace("redis://", "redis://tenant:secret@")
        code, shown = ask("doctor", GHOSTLESS_REDIS_URL=url)
        assert 0 == code, shown
        assert 0 == ask("scheduler", "--burst", GHOSTLESS_REDIS_URL=url)[0]
    finally:
        redis.acl_deluser("tenant")
