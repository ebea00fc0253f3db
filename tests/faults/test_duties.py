"""A duty of the watchdog that fails keeps no other from its work, is told by name, and works again later (B07)."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from audit import audit
from faults.duties import DUTIES, Duty
from ghostless.jobs import watchdog as module
from ghostless.jobs.errors import CorruptRecord, RedisUnavailable
from ghostless.jobs.settings import Settings
from ghostless.jobs.watchdog import Watchdog
from helpers import eventually
from redis import Redis
from scripts.seeding import Scene, scene

each_duty = pytest.mark.parametrize("duty", DUTIES, ids=lambda duty: duty.name)


@pytest.fixture
def stage(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A database whose watchdogs sweep often, and look at the server each time."""
    monkeypatch.setattr(module, "LOOK_AT_SERVER_AGAIN", 0.0)
    policy = redis.config_get("maxmemory-policy")
    yield scene(redis, Settings(sweep=0.02))
    for name, value in policy.items():
        redis.config_set(name, value)


def test_each_duty_is_tried(stage: Scene) -> None:
    """A new duty fails here until it is among those that are tried."""
    duties = Watchdog(stage.store)._duties()
    assert [duty.name for duty in DUTIES] == [duty.__name__ for duty in duties]
    assert [] == audit(stage.redis, stage.keys)


@contextmanager
def of_another_type(stage: Scene, duty: Duty) -> Iterator[None]:
    """Let the duty's own key hold something else, and then what it held before."""
    assert duty.own_key
    key, aside = duty.own_key(stage.keys), "aside"
    if stage.redis.exists(key):
        stage.redis.rename(key, aside)
    stage.redis.xadd(key, {"of": "another type"})
    yield
    stage.redis.delete(key)
    if stage.redis.exists(aside):
        stage.redis.rename(aside, key)


@contextmanager
def raising(stage: Scene, duty: Duty, error: Exception) -> Iterator[None]:
    """Let the duty's own call raise an error."""

    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise error

    def call(verb: str, *arguments: Any) -> Any:
        return fail() if verb == duty.script else scripts_call(verb, *arguments)

    scripts_call = stage.store.scripts.call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.store.scripts, "call", call)
        if not duty.script:
            patch.setattr(module, "preflight", fail)
        yield


def assert_only_this_one_fails(stage: Scene, duty: Duty, failure: Any) -> None:
    """Let something be due for each duty; check what is done while one fails, and when it does not any more."""
    for each in DUTIES:
        each.arrange(stage)
    watchdog = Watchdog(stage.store)
    with failure:
        eventually(lambda: assert_done(stage, watchdog, [each for each in DUTIES if each != duty]))
    eventually(lambda: assert_done(stage, watchdog, DUTIES))
    assert [] == audit(stage.redis, stage.keys)


def assert_done(stage: Scene, watchdog: Watchdog, duties: Iterable[Duty]) -> None:
    """Let the watchdog make a round; check what is due for these duties."""
    with suppress(RedisUnavailable):
        watchdog.sweep_all()
    for duty in duties:
        duty.check(stage)


@pytest.mark.parametrize("duty", [duty for duty in DUTIES if duty.own_key], ids=lambda duty: duty.name)
def test_a_damaged_key_of_one_duty(stage: Scene, duty: Duty, caplog: pytest.LogCaptureFixture) -> None:
    """The key that it alone needs is of another type."""
    assert_only_this_one_fails(stage, duty, of_another_type(stage, duty))
    assert any(line.startswith(f"{duty.name}: ") for line in caplog.messages), caplog.messages


@pytest.mark.parametrize(
    "error", [CorruptRecord("it"), ZeroDivisionError("it")], ids=lambda error: type(error).__name__
)
@each_duty
def test_an_error_of_one_duty(stage: Scene, duty: Duty, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever error it is, known or not."""
    assert_only_this_one_fails(stage, duty, raising(stage, duty, error))
    assert any(line.startswith(f"{duty.name}: ") for line in caplog.messages), caplog.messages


@each_duty
def test_one_duty_that_is_never_answered(stage: Scene, duty: Duty) -> None:
    """As when its call takes longer than the watchdog waits for Redis."""
    assert_only_this_one_fails(stage, duty, raising(stage, duty, RedisUnavailable(TimeoutError("too long"))))


class Waits(threading.Event):
    """Lets a watchdog make some rounds at once, and keeps how long it would have paused between them."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds, self.seconds = rounds, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        """Note the pause."""
        self.seconds.append(timeout or 0.0)
        if len(self.seconds) == self.rounds:
            self.set()
        return self.is_set()


@each_duty
def test_a_failing_duty_makes_no_sweep_late(stage: Scene, duty: Duty) -> None:
    """However often it fails: a sweep that comes later than half of what the lease leaves would judge nobody."""
    for error in (CorruptRecord("it"), ZeroDivisionError("it"), RedisUnavailable(TimeoutError("too long"))):
        waits = Waits(12)
        with raising(stage, duty, error):
            Watchdog(stage.store).run(waits)
        assert max(waits.seconds) <= stage.store.settings.longest_gap / 2
    assert [] == audit(stage.redis, stage.keys)
