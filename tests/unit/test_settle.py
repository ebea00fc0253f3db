"""Reporter and settle against a store that loses replies: what is sent again, and what nobody asks about."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from ghostless.jobs.errors import CorruptRecord, RedisUnavailable, StaleAttempt
from ghostless.jobs.horse_process import KILLED
from ghostless.jobs.keys import Keys
from ghostless.jobs.messages import Answer, Claim, Claimed, Ending, Held, NothingToClaim
from ghostless.jobs.model import Task
from ghostless.jobs.reporter import Reporter
from ghostless.jobs.settings import Settings
from ghostless.jobs.settle import settle, tell
from ghostless.jobs.supervisor import LEASE_SHARE, Shutdown, Supervisor
from ghostless.jobs.wakeup import Wakeup
from ghostless.statemachine import Event, Policy, Reason, State
from helpers import eventually

HELD = Held("t1", 1, "token")
TASK = Task("t1", "demo", "q", State.PROCESSING, 1, 1, 1, Policy())
CLAIMED = Claimed(HELD, TASK, {}, None)
DONE = Ending(Event.COMPLETE, Reason.POLICY, text="1")
LOST = RedisUnavailable(ConnectionError("no reply"))


class LossyStore:
    """Notes every call, and answers it with what the test laid ready for its verb, in order."""

    def __init__(self, beat: float = 0.02) -> None:
        self.settings = Settings(beat=beat, lease=10)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.ready: dict[str, list[Any]] = {}
        self.keys = Keys()

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((verb, (*arguments, *named.values())))
            answers = self.ready.get(verb, [])
            answer = answers.pop(0) if answers else Answer("moved", "t1", "PROCESSING", 1)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def of(self, verb: str) -> list[tuple[Any, ...]]:
        """Return the arguments of each call of a verb."""
        return [arguments for called, arguments in list(self.calls) if called == verb]


@pytest.fixture
def store() -> LossyStore:
    """A store on which the test decides."""
    return LossyStore()


@pytest.fixture
def reporter(store: LossyStore) -> Iterator[Reporter]:
    """A running reporter that holds the task."""
    thread = Reporter(store, "worker:w", lambda: None, lambda: None)  # type: ignore[arg-type]
    thread.start()
    thread.hold(HELD, State.PROCESSING, time.monotonic())
    yield thread
    thread.stop()


def settled(store: LossyStore, reporter: Reporter, give_up: Callable[[], bool] = lambda: False) -> Any:
    """Settle the task, and claim the next one with it."""
    claim = Claim("w", ("q",), "next", ("t",))
    return settle(store, reporter, [(CLAIMED, DONE)], "worker:w", next_claim=claim, give_up=give_up)  # type: ignore[arg-type]


def test_an_extension_is_told_at_once_and_with_each_beat() -> None:
    """Also when the first reply is lost; the next attempt knows nothing of it."""
    store = LossyStore(beat=1.0)
    thread = Reporter(store, "worker:w", lambda: None, lambda: None)  # type: ignore[arg-type]
    thread.start()
    thread.hold(HELD, State.PROCESSING, time.monotonic())
    begun = time.monotonic()
    store.ready["heartbeat"] = [LOST]
    thread.extend(90_000)
    eventually(lambda: assert_told(store, (HELD, 90_000), least=1))
    assert time.monotonic() - begun < 1, "not with the next beat only"
    eventually(lambda: assert_told(store, (HELD, 90_000), least=3))
    following = Held("t2", 1, "token")
    thread.hold(following, State.PROCESSING, time.monotonic())
    eventually(lambda: assert_told(store, (following, None), least=1))
    thread.stop()


def assert_told(store: LossyStore, beat: tuple[Held, int | None], least: int) -> None:
    """Check that so many beats said this."""
    assert store.of("heartbeat").count(beat) >= least


def test_an_ending_is_sent_until_it_is_answered(store: LossyStore, reporter: Reporter) -> None:
    """Each time with the same claim and the same jitter, and no beat asks about the attempt in between."""
    answer = ([Answer("moved", "t1", "SUCCESS", 1)], NothingToClaim("empty"))
    store.ready["finish_each"] = [LOST, LOST, answer]
    store.ready["heartbeat"] = []
    assert settled(store, reporter) == answer[1]
    assert len(store.of("finish_each")) == 3
    assert len({str(call) for call in store.of("finish_each")}) == 1
    first = next(index for index, (verb, _) in enumerate(store.calls) if verb == "finish_each")
    assert {verb for verb, _ in store.calls[first:]} == {"finish_each"}


def test_an_ending_that_is_refused_is_kept_and_its_lease_too(
    store: LossyStore, reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside a damaged index it is sent again, alone, until it is taken; what ended with it is not told twice."""
    other = replace(CLAIMED, held=Held("t2", 1, "token"), asked_at=time.monotonic())
    damage = CorruptRecord("ghostless:owned:ann: expected zset, got string")
    taken = Answer("moved", "t1", "SUCCESS", 1)
    store.ready["finish_each"] = [([taken, damage], None), ([damage], None), ([taken], NothingToClaim("empty"))]
    store.ready["heartbeat"] = [StaleAttempt("t2", 1)]  # which the next answer will tell
    noted: list[tuple[str, str]] = []
    ended = [(CLAIMED, DONE), (other, DONE)]
    reply = tell(cast(Any, store), ended, "worker:w", give_up=lambda: False, note=lambda *told: noted.append(told))
    assert reply == NothingToClaim("empty")
    assert [2, 1, 1] == [len(call[0]) for call in store.of("finish_each")]
    assert [(other.held, None)] * 2 == [call for call in store.of("heartbeat") if call[0] == other.held]
    assert {"t2"} == {task_id for task_id, _ in noted}
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert all("ghostless:owned:ann" in line and "`ghostless doctor --repair`" in line for line in lines)


def test_an_end_that_is_kept_is_not_judged_by_its_timeout(store: LossyStore) -> None:
    """The lease is renewed with the time that the attempt has had, and a lease more."""
    short = replace(TASK, policy=Policy(timeout=5_000))
    claimed = replace(CLAIMED, task=short, asked_at=time.monotonic() - 60)
    store.ready["finish_each"] = [([CorruptRecord("ghostless:retention: expected zset")], None)]
    tell(cast(Any, store), [(claimed, DONE)], "worker:w", give_up=lambda: True)
    assert [(HELD, pytest.approx(70_000, abs=1_000))] == store.of("heartbeat")


@pytest.mark.parametrize("damage", [" field losses: expected a whole number, got x", ": expected hash, got string"])
def test_nobody_waits_for_a_record_that_cannot_be_read(store: LossyStore, damage: str) -> None:
    """That is for a person; the worker takes the next task."""
    store.ready["finish_each"] = [([CorruptRecord(f"ghostless:task:t1{damage}")], None)]
    assert tell(cast(Any, store), [(CLAIMED, DONE)], "worker:w", give_up=lambda: False) is None
    assert [] == store.of("heartbeat")


@pytest.mark.parametrize(
    "damage",
    ["ghostless:task:t10 field losses: expected a whole number, got x", "ghostless:retention: got ghostless:task:t1:"],
)
def test_the_end_is_kept_beside_the_damage_of_another_key(store: LossyStore, damage: str) -> None:
    """Also of one whose name begins like that of the task's record, or whose error holds it."""
    store.ready["finish_each"] = [([CorruptRecord(damage)], None), ([Answer("moved", "t1", "SUCCESS", 1)], None)]
    tell(cast(Any, store), [(CLAIMED, DONE)], "worker:w", give_up=lambda: False)
    assert 2 == len(store.of("finish_each"))
    assert 1 == len(store.of("heartbeat"))


def test_an_ending_that_comes_too_late_is_sent_once(store: LossyStore, reporter: Reporter) -> None:
    """A worker that is to leave by now has its task's end told all the same, be it that only the handler was slow."""
    answer = ([Answer("moved", "t1", "PENDING", 1)], NothingToClaim("empty"))
    store.ready["finish_each"] = [answer]
    assert settled(store, reporter, give_up=lambda: True) == answer[1]
    store.ready["finish_each"] = [LOST, answer]
    reporter.hold(HELD, State.PROCESSING, time.monotonic())
    assert settled(store, reporter, give_up=lambda: True) is None
    assert len(store.of("finish_each")) == 2


def test_an_attempt_that_was_given_away_sends_nothing(store: LossyStore, reporter: Reporter) -> None:
    """A stale answer to a beat ends the story: the result belongs to nobody any more."""
    store.ready["heartbeat"] = [StaleAttempt("t1", 1)] * 100
    eventually(lambda: assert_lost(reporter))
    assert settled(store, reporter) is None
    assert store.of("finish_each") == []


def assert_lost(reporter: Reporter) -> None:
    """Check that the reporter knows."""
    assert reporter.is_lost


def test_a_result_waits_for_what_was_reported_before_it(store: LossyStore, reporter: Reporter) -> None:
    """The checkpoint that could not be sent goes first; after the ending it would be refused."""
    store.ready["checkpoint"] = [LOST, LOST]
    store.ready["finish_each"] = [([Answer("moved", "t1", "SUCCESS", 1)], None)]
    reporter.checkpoint("[1]")
    settled(store, reporter)
    verbs = [verb for verb, _ in store.calls if verb in ("checkpoint", "finish_each")]
    assert verbs == ["checkpoint", "checkpoint", "checkpoint", "finish_each"]


def test_a_worker_that_shuts_down_gives_up(store: LossyStore, reporter: Reporter) -> None:
    """A Redis that never answers does not hold a worker that is to end; the watchdog finds the task."""
    store.ready["finish_each"] = [LOST] * 1000
    until = time.monotonic() + 0.3
    assert settled(store, reporter, give_up=lambda: time.monotonic() > until) is None


def test_lines_are_sent_again_under_the_same_name(store: LossyStore, reporter: Reporter) -> None:
    """A log call whose reply was lost is repeated as it was, so that Redis knows it; so is a stage."""
    store.ready["log"] = [LOST]
    store.ready["stage"] = [LOST]
    reporter.line("one")
    reporter.stage("encode")
    assert reporter.flush(5.0)
    for verb in ("log", "stage"):
        assert len(store.of(verb)) == 2
        assert store.of(verb)[0] == store.of(verb)[1]


def test_a_damaged_key_keeps_no_lease_from_being_renewed(store: LossyStore, reporter: Reporter) -> None:
    """A report that can never be stored is dropped; beats go on."""
    store.ready["log"] = [CorruptRecord("log:t1")]
    reporter.line("one")
    assert reporter.flush(5.0)
    beats = len(store.of("heartbeat"))
    eventually(lambda: assert_more_beats(store, beats))
    assert not reporter.is_lost


def assert_more_beats(store: LossyStore, than: int) -> None:
    """Check that beats were sent since."""
    assert len(store.of("heartbeat")) > than


def test_stages_end_when_the_history_is_full(store: LossyStore, reporter: Reporter) -> None:
    """After the first refusal no further stage costs a round trip."""
    store.ready["stage"] = [Answer("refused", "t1", "PROCESSING", 1)]
    with reporter._changed:  # all are there before the first is sent
        for number in range(50):
            reporter._outbox.stages.append(f"s{number}")
    reporter.line("wake up")
    assert reporter.flush(5.0)
    assert len(store.of("stage")) == 1


def test_holding_twice_does_not_forget_a_loss(store: LossyStore, reporter: Reporter) -> None:
    """An attempt that was lost stays lost."""
    store.ready["heartbeat"] = [StaleAttempt("t1", 1)] * 100
    eventually(lambda: assert_lost(reporter))
    reporter.hold(HELD, State.PROCESSING, time.monotonic())
    assert reporter.is_lost


def test_the_lease_counts_from_the_claim(store: LossyStore) -> None:
    """Not from when the worker came to it: what waited in between is lost of the lease."""
    reporter = Reporter(store, "worker:w", lambda: None, lambda: None)  # type: ignore[arg-type]
    claimed_at = time.monotonic() - 3
    reporter.hold(HELD, State.PROCESSING, claimed_at)
    assert reporter.renewed_at == claimed_at
    assert 0 < LEASE_SHARE < 1


def test_a_cancel_that_came_before_the_attempt_was_held(store: LossyStore) -> None:
    """A hint about a task that is not held yet is remembered, and looked at once it is."""
    store.settings = Settings(beat=100, lease=1000)
    woken = threading.Event()
    store.ready["heartbeat"] = [Answer("moved", "t1", "CANCELLING", 1)]
    reporter = Reporter(store, "worker:w", woken.set, lambda: None)  # type: ignore[arg-type]
    reporter.start()
    reporter.look_at("t1")
    reporter.hold(HELD, State.PROCESSING, time.monotonic())
    assert woken.wait(5)
    assert reporter.state is State.CANCELLING
    reporter.stop()


def test_an_ending_is_sent_again_well_within_a_lease(
    store: LossyStore, reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage a lease is left before anybody is judged: however long it was, the result comes in time."""
    store.settings = Settings(beat=0.02, lease=1)
    answer = ([Answer("moved", "t1", "SUCCESS", 1)], NothingToClaim("empty"))
    store.ready["finish_each"] = [*[LOST] * 10, answer]
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert settled(store, reporter) == answer[1]
    assert len(pauses) == 10
    assert max(pauses) <= 0.25


class NoHorse:
    """Raises whatever is asked of it."""

    set_up = ()

    def run(self, order: Any) -> None:
        """Tell that the handler would begin."""
        raise BrokenPipeError("the handler was to begin")


@pytest.fixture
def late(store: LossyStore, reporter: Reporter, tmp_path: Path) -> Iterator[Supervisor]:
    """The supervisor of an attempt that was claimed a lease ago, by a worker that was frozen since."""
    claimed = replace(CLAIMED, held=Held("t2", 1, "token"), asked_at=time.monotonic() - store.settings.lease)
    wakeup = Wakeup()
    horse: Any = NoHorse()
    yield Supervisor(claimed, horse, reporter, store.settings, Shutdown(), wakeup, str(tmp_path / "folder"), horse.run)
    wakeup.close()


def test_no_handler_begins_when_the_lease_is_over(store: LossyStore, late: Supervisor) -> None:
    """Without an answer the task is handed back; when somebody else has it, nothing more is said of it."""
    store.ready["heartbeat"] = [LOST] * 100
    ending = late.run()
    assert ending
    assert (Event.SUSPEND, Reason.HEARTBEAT_LOST) == (ending.event, ending.reason)
    store.ready["heartbeat"] = [StaleAttempt("t2", 1)] * 100
    late.settings = replace(late.settings, beat=5)
    assert late.run() is None


def test_a_lease_that_is_still_there_is_renewed_first(store: LossyStore, late: Supervisor) -> None:
    """Redis took its time with the claim, and nobody else has the task: the handler begins, and nothing is lost."""
    late.settings = replace(late.settings, beat=5)
    with pytest.raises(BrokenPipeError):
        late.run()
    assert late.reporter.renewed_at > time.monotonic() - 5


class Quick:
    """A horse in which every handler returns at once."""

    alive, setting_up, holds_output = True, "", False

    def __init__(self, *set_up: str) -> None:
        self.set_up = set_up

    def run(self, order: Any) -> None:
        """Take an order."""

    def frames(self, timeout: float, also: Any) -> list[dict[str, Any]]:
        """Tell the end."""
        return [{"kind": "returned", "task_id": "t1", "attempt": 1, "result": "1", "threads": 0}]

    def catch_up(self) -> None:
        """Have no output."""


@pytest.mark.parametrize(("set_up", "counts"), [((), False), (("demo",), True), (("other",), False)])
def test_silence_counts_from_the_order_where_no_setup_is_to_run(
    store: LossyStore, reporter: Reporter, tmp_path: Path, set_up: tuple[str, ...], counts: bool
) -> None:
    """Else from the word of the horse that the setup is over."""
    wakeup, horse = Wakeup(), cast(Any, Quick(*set_up))
    claimed = replace(CLAIMED, task=replace(TASK, policy=Policy(stall_timeout=5_000)), asked_at=time.monotonic())
    watch = Supervisor(
        claimed, horse, reporter, store.settings, Shutdown(), wakeup, str(tmp_path / "folder"), horse.run
    )
    ending = watch.run()
    assert ending
    assert ending.event is Event.COMPLETE
    assert counts == (watch._clocks.silent_until < math.inf)
    wakeup.close()


class Killed(Quick):
    """One that its worker killed."""

    alive = False

    def frames(self, timeout: float, also: Any = ()) -> list[dict[str, Any]]:
        """Say nothing."""
        return []

    def cause_of_death(self) -> str:
        """Tell who did it."""
        return KILLED


def test_who_dies_for_what_a_task_before_it_did_is_not_to_blame(
    store: LossyStore, reporter: Reporter, tmp_path: Path
) -> None:
    """It had begun behind one whose process the worker had to kill: it comes back, and no budget is used."""
    wakeup, horse = Wakeup(), cast(Any, Killed())
    claimed = replace(CLAIMED, asked_at=time.monotonic())
    ending = Supervisor(
        claimed, horse, reporter, store.settings, Shutdown(), wakeup, str(tmp_path / "folder"), give=None
    ).run()
    assert ending
    assert (Event.SUSPEND, Reason.SHUTDOWN) == (ending.event, ending.reason)
    wakeup.close()
