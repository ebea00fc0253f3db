"""What a worker does around the ends of attempts, without Redis or a process."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ghostless.jobs import runs
from ghostless.jobs.messages import Claimed, Ending, Held
from ghostless.jobs.model import Task
from ghostless.jobs.runs import Runs
from ghostless.jobs.supervisor import Supervisor
from ghostless.statemachine import Event, Policy, Reason, State

DONE = Ending(Event.COMPLETE, Reason.POLICY, text="1")
TASK = Task("t1", "work", "q", State.PROCESSING, 1, 1, 1, Policy())
CLAIMED = Claimed(Held("t1", 1, "aa"), TASK, {}, None, 0.0)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order; Redis is told at once."""
    done: list[str] = []
    monkeypatch.setattr(runs, "settle", lambda *_args, next_claim, **_rest: done.append(f"tell, then {next_claim}"))
    return done


def settle(steps: list[str], **batch: Any) -> None:
    """Settle a batch in which one task ended."""
    worker: Any = object.__new__(Runs)
    worker.claims = SimpleNamespace(store=None, keep=lambda reply: steps.append("keep"))
    worker.reporter, worker.actor, worker.next_claim = None, "worker:w", lambda: "claim"
    worker.vitals = SimpleNamespace(note_unwritten=None)
    horse = SimpleNamespace(hand_out=lambda: steps.append("hand out"))
    members = {"ended": [(CLAIMED, DONE)], "rest": [], "tells": False, **batch}
    worker._settle(cast(Any, SimpleNamespace(horse=horse, **members)))


def test_what_is_printed_does_not_wait_until_redis_answers(steps: list[str]) -> None:
    """Redis may be away for long, and who prints on behind the handlers would stand still."""
    settle(steps)
    assert ["hand out", "tell, then claim", "keep"] == steps


@pytest.mark.parametrize("batch", [{"tells": True}, {"rest": [CLAIMED]}], ids=["told", "free"])
def test_nothing_new_is_claimed_while_tasks_are_on_their_way_back(steps: list[str], batch: dict[str, Any]) -> None:
    """They may be all that there is: a worker that ends when there is nothing would leave them."""
    settle(steps, **batch)
    assert "tell, then None" in steps


def test_why_a_horse_died_is_looked_at_before_it_is_killed() -> None:
    """The end of the task before may be found after it: the next one's crash is then told as what it is."""
    asked: list[str] = []

    def frames(_timeout: float) -> Iterator[dict[str, Any]]:
        yield {"kind": "returned", "task_id": "t1", "attempt": 1, "result": "1", "threads": False, "goes_on": True}

    horse = SimpleNamespace(
        frames=frames,
        holds_output=True,
        cause_of_death=lambda: asked.append("cause") or "signal 11 (SIGSEGV)",
        kill=lambda: asked.append("kill"),
    )
    rest: dict[str, Any] = dict.fromkeys(("reporter", "settings", "shutdown", "wakeup", "tmpdir", "give"))
    ending = Supervisor(CLAIMED, cast(Any, horse), **rest)._died()
    assert (Event.COMPLETE, ["cause"]) == (ending.event, asked)
