"""The thread that reports for a running attempt, on a store that only counts."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ghostless.jobs.errors import RedisUnavailable
from ghostless.jobs.messages import Answer, Held
from ghostless.jobs.reporter import Reporter
from ghostless.jobs.settings import Settings
from ghostless.statemachine import State
from helpers import eventually

HELD = Held("t1", 1, "aa")


def test_a_hint_that_comes_while_a_beat_is_sent_is_not_forgotten() -> None:
    """A cancel that is hinted at in the middle of a beat is heard at once, not with the next beat."""
    beats: list[float] = []

    def heartbeat(held: Held, longest_run: int | None = None) -> Answer:
        beats.append(time.monotonic())
        return Answer("moved", held.task_id, State.PROCESSING)

    def on_beat() -> None:
        if len(beats) == 1:
            reporter.look_at("t1")

    store = SimpleNamespace(settings=Settings(beat=60.0, lease=180.0), heartbeat=heartbeat)
    reporter = Reporter(store, "worker:w", wake=lambda: None, on_beat=on_beat)  # type: ignore[arg-type]
    reporter.hold(HELD, State.PROCESSING, time.monotonic())
    reporter.look_at("t1")
    reporter.start()
    try:
        eventually(lambda: _assert_beats(beats, 2), seconds=5)
    finally:
        reporter.stop()
    assert 2 == len(beats)


def _assert_beats(beats: list[Any], number: int) -> None:
    assert len(beats) >= number


def test_a_worker_of_many_short_tasks_beats_by_the_clock() -> None:
    """Each task begins a lease of its own, and puts off no beat: else a busy worker would vanish from the registry."""
    beats: list[float] = []
    store = SimpleNamespace(
        settings=Settings(beat=0.2, lease=0.6), heartbeat=lambda held, run: Answer("moved", "t", "PROCESSING")
    )
    reporter = Reporter(store, "worker:w", wake=lambda: None, on_beat=lambda: beats.append(time.monotonic()))  # type: ignore[arg-type]
    reporter.start()
    try:
        until = time.monotonic() + 1.5
        for number in iter(range(10**6)):
            if time.monotonic() > until:
                break
            reporter.hold(Held(f"t{number}", 1, "aa"), State.PROCESSING, time.monotonic())
            time.sleep(0.02)
            reporter.release()
    finally:
        reporter.stop()
    assert len(beats) >= 3


def test_a_beat_may_be_asked_for_in_a_while() -> None:
    """It comes earlier than planned, and a later wish does not put it off."""
    beats: list[float] = []
    store = SimpleNamespace(settings=Settings(beat=60.0, lease=180.0))
    reporter = Reporter(store, "worker:w", wake=lambda: None, on_beat=lambda: beats.append(time.monotonic()))  # type: ignore[arg-type]
    reporter.start()
    try:
        eventually(lambda: _assert_beats(beats, 1))
        asked_at = time.monotonic()
        reporter.beat_soon(0.3)
        reporter.beat_soon(30)
        eventually(lambda: _assert_beats(beats, 2))
    finally:
        reporter.stop()
    assert beats[1] >= asked_at + 0.3


def test_a_task_wakes_the_reporter_only_when_there_is_something_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """To switch to its thread and back for each task would cost as much as a short task."""
    beats: list[float] = []
    looks: list[int] = []
    store = SimpleNamespace(settings=Settings(beat=60.0, lease=180.0))
    reporter = Reporter(store, "worker:w", wake=lambda: None, on_beat=lambda: beats.append(0))  # type: ignore[arg-type]
    has_work = reporter._has_work
    monkeypatch.setattr(reporter, "_has_work", lambda: looks.append(1) or has_work())
    reporter.start()
    try:
        eventually(lambda: _assert_beats(beats, 1))
        for number in range(100):
            reporter.hold(Held(f"t{number}", 1, "aa"), State.PROCESSING, time.monotonic())
            time.sleep(0.001)  # or the thread had no chance to look
            reporter.release()
        assert len(looks) < 10
    finally:
        reporter.stop()


def test_what_could_not_be_sent_of_one_attempt_is_not_sent_as_the_next_ones() -> None:
    """The call that fails may end when its attempt is over, and another one has begun."""
    sent: list[tuple[str, list[str]]] = []

    def log(held: Held, lines: list[str], call_id: str) -> Answer:
        sent.append((held.task_id, list(lines)))
        if held is HELD:
            reporter.release()
            reporter.hold(other, State.PROCESSING, time.monotonic())
            raise RedisUnavailable(ConnectionError("gone for a moment"))
        return Answer("moved", held.task_id, State.PROCESSING)

    other = Held("t2", 1, "bb")

    def heartbeat(held: Held, longest_run: int | None = None) -> Answer:
        return Answer("moved", held.task_id, State.PROCESSING)

    store = SimpleNamespace(settings=Settings(beat=60.0, lease=180.0), log=log, heartbeat=heartbeat)
    reporter = Reporter(store, "worker:w", wake=lambda: None, on_beat=lambda: None)  # type: ignore[arg-type]
    reporter.hold(HELD, State.PROCESSING, time.monotonic())
    reporter.line("of the first")
    reporter.start()
    try:
        eventually(lambda: _assert_beats(sent, 1))
        reporter.line("of the second")
        eventually(lambda: _assert_beats(sent, 2))
    finally:
        reporter.stop()
    assert ["of the first", "of the second"] == [line for _, lines in sent for line in lines]
