"""The clocks of an attempt, by hand: when it has run too long, was silent too long, and what it gets on top."""

import math
import time
from typing import Any

import pytest
from ghostless.jobs.clocks import Clocks
from ghostless.jobs.messages import Claimed, Held
from ghostless.jobs.model import Task
from ghostless.jobs.supervisor import Supervisor
from ghostless.statemachine import Policy, State

START = 1000.0


def clocks(**terms: int) -> Clocks:
    """Return the clocks of an attempt that begins at START."""
    return Clocks(Policy(**{"timeout": 60_000, **terms}), START)


def test_without_extensions_the_timeout_is_the_end() -> None:
    """However much progress is reported."""
    only = clocks()
    only.begin(START)
    only.report(START + 59)
    assert (only.extend(START + 60), only.ends_at, only.next_at) == (False, START + 60, START + 60)


def test_silence_counts_from_the_handlers_first_moment() -> None:
    """Not in the setup, which only the timeout ends; each report starts it anew."""
    quiet = clocks(stall_timeout=5_000)
    assert (quiet.silent_until, quiet.next_at) == (math.inf, START + 60)
    quiet.begin(START + 20)
    assert quiet.silent_until == quiet.next_at == START + 25
    quiet.report(START + 24)
    assert quiet.silent_until == START + 29
    quiet.report(START + 58)
    assert quiet.next_at == START + 60


def test_no_stall_timeout_is_any_silence() -> None:
    """It is off by default."""
    quiet = clocks()
    quiet.begin(START)
    assert quiet.silent_until == math.inf


def test_progress_moves_the_deadline_once_a_time() -> None:
    """A report since the last look gives `extend_by` more; the next deadline needs another one."""
    moved = clocks(extend_by=30_000, max_runtime=1_000_000)
    moved.report(START + 10)
    assert not moved.extend(START + 59.9), "not before the deadline"
    assert moved.extend(START + 60)
    assert (moved.ends_at, moved.run) == (START + 90, 90_000)
    assert not moved.extend(START + 90)
    assert moved.ends_at == START + 90


def test_no_progress_gives_nothing() -> None:
    """That the handler has begun is no progress."""
    idle = clocks(extend_by=30_000, max_runtime=1_000_000)
    idle.begin(START + 1)
    assert not idle.extend(START + 60)


def test_extensions_end_at_the_longest_run() -> None:
    """The last one is as short as it must be, and then there is none."""
    short = clocks(extend_by=50_000, max_runtime=130_000)
    ends: list[float] = []
    for _ in range(4):
        short.report(short.ends_at - 1)
        if short.extend(short.ends_at):
            ends.append(short.ends_at - START)
    assert ends == [110, 130]


@pytest.mark.parametrize(("late", "extended"), [(3, True), (100, False)])
def test_a_look_that_comes_late_gives_as_much(late: float, extended: bool) -> None:
    """A worker that was frozen over the deadline extends from now on; beyond the longest run it does not."""
    frozen = clocks(extend_by=1_000, max_runtime=90_000)
    frozen.report(START + 60 + late)
    assert frozen.extend(START + 60 + late) is extended
    assert frozen.ends_at == START + min(61 + late, 90)


def test_an_attempt_runs_since_it_was_claimed() -> None:
    """Not since its handler could be called: under a stock rq worker modules are imported in between. Nor since the
    claim was sent: Redis may take its time, and no attempt may end before its timeout. One that waited behind others of
    its batch, whose horse has its order already, runs since they were over."""
    task = Task("t1", "work", "q", State.PROCESSING, 1, 0, 0, Policy(timeout=60_000))
    claimed = Claimed(Held("t1", 1, "aa"), task, {}, None, asked_at=START - 1, answered_at=START)
    rest: dict[str, Any] = dict.fromkeys(("horse", "reporter", "settings", "shutdown", "wakeup", "tmpdir"))
    assert Supervisor(claimed, **rest, give=lambda order: None)._clocks.ends_at == START + 60
    assert Supervisor(claimed, **rest, give=None)._clocks.ends_at >= time.monotonic() + 59


def test_who_was_frozen_cannot_tell_how_long_a_silence_was() -> None:
    """The silence begins anew then; before the handler runs there is none to begin."""
    quiet = clocks(stall_timeout=5_000)
    quiet.excuse(START + 1)
    assert quiet.silent_until == math.inf
    quiet.begin(START + 2)
    quiet.excuse(START + 30)
    assert quiet.silent_until == START + 35
