"""The answer to "where is my task, why, and what next?", for each thing that may surround a task."""

from dataclasses import replace
from typing import Any

import pytest
from ghostless.jobs.circumstances import Circumstances, refusal
from ghostless.jobs.dependencies import Awaited
from ghostless.jobs.explanation import explain
from ghostless.jobs.fleet import Member
from ghostless.jobs.model import Entry, Task
from ghostless.jobs.reads import Damaged
from ghostless.jobs.record import WorkerRecord
from ghostless.jobs.rq_keys import WORKER_RECORD
from ghostless.statemachine import FINAL, STORED, Event, Policy, State

NOW = 1_000_000


def task(state: State, **fields: Any) -> Task:
    """Return a task in a state, with the times that the state has."""
    some = Task(
        id="t1",
        type="work",
        queue="gpu",
        state=state,
        attempt=1,
        submitted_at=NOW - 60_000,
        entered_at=NOW - 30_000,
        policy=Policy(),
        due_at=NOW + 5_000,
        timeout_at=NOW + 600_000,
        worker_id="w1",
    )
    return replace(some, **fields)


def worker(name: str) -> Member:
    """Return a worker that listens on the queue."""
    return Member.read(name, {"queues": "gpu", "state": "idle"}, NOW)


def ours(name: str, *types: str, **fields: Any) -> Member:
    """Return a worker of ours, which tells what it serves."""
    record = WorkerRecord(types=types, lease=15_000, beat_at=NOW - 3_000, **fields)
    return Member.read(name, {"queues": "gpu", "state": "idle", WORKER_RECORD: record.to_json()}, NOW)


FAR = replace(worker("w1"), over_http=True)
"""One of which nobody knows how it runs what it runs."""


def entry(event: Event, message: str = "", reason: str = "user", actor: str = "cli:ann") -> Entry:
    """Return a move as the history has it."""
    return Entry(f"{NOW - 30_000}-0", "t1", event, "", "", 1, actor, reason, message)


def around(state: State, *, fields: dict[str, Any] | None = None, **facts: Any) -> Circumstances:
    """Return a healthy surrounding: watched, the lease fresh, one worker."""
    healthy: dict[str, Any] = {"workers": [worker("w1")], "swept_at": NOW - 500, "lease": 12_000, "judge_from": 0}
    return Circumstances(now=NOW, task=task(state, **(fields or {})), **(healthy | facts))


@pytest.mark.parametrize("state", STORED)
def test_every_state_is_explained(state: State) -> None:
    """No task is ever without a why, a next step, and what a person can do about it, unless it is over."""
    told = explain(around(state))
    assert told.why
    assert told.next
    assert told.actions or state in FINAL | {State.CANCELLING}


@pytest.mark.parametrize(
    ("state", "facts", "why", "upcoming"),
    [
        (State.PENDING, {"workers": []}, "no worker listens on its queue gpu", "`ghostless worker gpu`"),
        (State.PENDING, {"queue_paused": True}, "its queue gpu is paused", "`ghostless queues resume gpu`"),
        (State.PENDING, {"suspended": True}, "suspended", "`rq resume`"),
        (State.PENDING, {"position": 3, "pending": 9}, "number 3 of 9", "the worker w1 starts it"),
        (
            State.PENDING,
            {"position": 4, "pending": 9, "usual": 10_000, "workers": [worker("w1"), worker("w2")]},
            "number 4 of 9",
            "one of 2 workers starts it when its turn comes, in about 20 s",
        ),
        (
            State.PENDING,
            {"fields": {"parked_at": NOW - 9_000}, "workers": [ours("w1", "other")]},
            "no worker of its queue gpu serves the type work",
            "the first worker that serves it starts it",
        ),
        (State.PENDING, {"ticketless": True}, "its ticket is not in the queue gpu", "the watchdog makes a new one"),
        (State.SCHEDULED, {}, "later time", "goes to its queue"),
        (State.SCHEDULED, {"swept_at": None}, "later time", "`ghostless watchdog`"),
        (
            State.RETRY_WAITING,
            {"history": [entry(Event.FAIL, "ValueError: no model", "exception")], "fields": {"failures": 1}},
            "attempt 1 ended: ValueError: no model",
            "attempt 2",
        ),
        (
            State.BLOCKED,
            {
                "awaited": Awaited(2, (replace(task(State.PROCESSING), id="x"), replace(task(State.PENDING), id="y"))),
                "fields": {"dependencies": 3, "due_at": None},
            },
            "it waits for 2 of the 3 tasks that it depends on: x, which is PROCESSING for 30 s, y, which is PENDING",
            "the last of them to end in SUCCESS releases it; the first to end otherwise cancels it",
        ),
        (
            State.BLOCKED,
            {"awaited": Awaited(9, (replace(task(State.PAUSED), id="x"),)), "fields": {"dependencies": 9}},
            "x, which is PAUSED for 30 s and 8 more",
            "but not before its time",
        ),
        (
            State.BLOCKED,
            {"awaited": Awaited(1, (Damaged("x", "the record is gone"),))},
            "x, which cannot be read (the record is gone)",
            "the watchdog looks at them, and cancels it when one is gone",
        ),
        (State.BLOCKED, {"fields": {"dependencies": 2}}, "(2) ended in SUCCESS", "it goes to its queue"),
        (State.PROCESSING, {}, "the worker w1 runs attempt 1", "its worker stops it"),
        (
            State.PROCESSING,
            {"fields": {"policy": Policy(extend_by=60_000, max_runtime=7_200_000, stall_timeout=30_000)}},
            "the worker w1 runs attempt 1",
            "its worker stops it after 30 s without progress, or at its timeout or later, at most 2 h from its start",
        ),
        (State.PROCESSING, {"lease": 5_000, "granted": 15_000}, "not renewed the lease", "if the lease runs out"),
        (State.PROCESSING, {"lease": None}, "w1 has gone silent", "the watchdog takes it away"),
        (State.PROCESSING, {"lease": None, "is_doubted": True}, "w1 has gone silent", "the watchdog looks twice"),
        (State.PROCESSING, {"lease": None, "swept_at": None}, "gone silent", "`ghostless watchdog`"),
        (
            State.CANCELLING,
            {"history": [entry(Event.CANCEL, "wrong prompt")]},
            "asked to stop by cli:ann: wrong prompt, and its worker w1 has not confirmed",
            "kills its process after the grace",
        ),
        (
            State.CANCELLING,
            {"history": [entry(Event.CANCEL)], "holder": FAR, "grace": 10_000, "patience": 45_000},
            "its worker w1 has not confirmed",
            "its worker stops it when its next beat tells it so; should its handler not stop, the watchdog takes it",
        ),
        (State.PAUSING, {"history": [entry(Event.PAUSE)]}, "by cli:ann", "at its next checkpoint"),
        (State.PAUSED, {"history": [entry(Event.PAUSE, "lunch")]}, "by cli:ann: lunch", "`ghostless resume t1`"),
        (State.SUCCESS, {"fields": {"started_at": NOW - 42_000}}, "attempt 1 completed after 12 s", "retention"),
        (
            State.FAILED,
            {"history": [entry(Event.FAIL, "killed: signal 9 (SIGKILL)", "crashed")]},
            "attempt 1 failed: killed: signal 9",
            "retention",
        ),
        (
            State.TIMEOUT_CANCELLED,
            {"history": [entry(Event.TIMEOUT, "", "deadline"), entry(Event.GIVE_UP, "timeouts used up")]},
            "given up; attempt 1 ended: it ran longer than allowed",
            "retention",
        ),
        (State.CANCELLED, {"history": [entry(Event.CANCEL)]}, "cancelled by cli:ann", "retention"),
    ],
)
def test_the_reason_and_the_next_step(state: State, facts: dict[str, Any], why: str, upcoming: str) -> None:
    """What keeps a task where it is, and what moves it on, is told with names and with what to type."""
    told = explain(around(state, **facts))
    assert why in told.why
    assert upcoming in told.next


@pytest.mark.parametrize(
    ("state", "facts", "at"),
    [
        (State.SCHEDULED, {}, NOW + 5_000),
        (State.RETRY_WAITING, {}, NOW + 5_000),
        (State.PROCESSING, {}, NOW + 600_000),
        (State.PROCESSING, {"lease": 5_000, "granted": 15_000}, NOW + 5_000),
        (State.PROCESSING, {"lease": None, "look_at": NOW + 700}, NOW + 700),
        (State.PROCESSING, {"lease": None, "look_at": NOW + 700, "judge_from": NOW + 9_000}, NOW + 9_000),
        (State.PROCESSING, {"lease": None, "look_at": NOW - 700, "swept_at": None}, None),
        (State.CANCELLING, {"grace": 40_000}, NOW + 10_000),
        (State.PAUSING, {"grace": 20_000}, NOW + 10_000),
        (State.CANCELLING, {"grace": 5_000, "patience": 45_000}, NOW + 15_000),
        (State.CANCELLING, {}, None),
        (State.SUCCESS, {}, NOW - 30_000 + Policy().retention),
        (State.PENDING, {}, None),
        (State.PAUSED, {}, None),
    ],
)
def test_the_time_of_the_next_step(state: State, facts: dict[str, Any], at: int | None) -> None:
    """Where the clock moves a task, the time is told; where it does not, none is made up."""
    assert at == explain(around(state, **facts)).next_at


def test_who_serves_the_type_and_who_does_not() -> None:
    """Each worker of the queue is named with what it serves, or with why it does not take the type now."""
    wont = ours("w2", "work", set_aside={"work": "setup of work failed: no GPU"})
    told = explain(around(State.PENDING, workers=[ours("w1", "other"), wont]))
    assert "no worker of its queue gpu serves the type work" == told.why
    assert "w1 serves other" in told.evidence
    assert "w2 does not take it for now: setup of work failed: no GPU" in told.evidence
    told = explain(
        around(State.PENDING, position=1, pending=1, workers=[ours("w1", "other"), ours("w3", "work"), wont])
    )
    assert "the worker w3 starts it" in told.next
    assert "work is served by w3" in told.evidence


def test_workers_that_take_nothing_now() -> None:
    """One that loads may serve the type later; one that drains does so no more, and hands back what it runs."""
    loads, drains = ours("w1", loading_since=NOW - 12_000), ours("w2", "work", drain_ends_at=NOW + 9_000)
    assert ("loading", "draining") == (loads.state, drains.state)
    told = explain(around(State.PENDING, workers=[loads, drains]))
    assert told.why == (
        "no worker of its queue gpu serves the type work; w1 is loading its modules, for 12 s; "
        "w2 is draining, and takes nothing new"
    )
    told = explain(around(State.PENDING, position=1, pending=1, workers=[ours("w3", "work"), loads, drains]))
    assert "the worker w3 starts it" in told.next
    assert "w1 is loading its modules, for 12 s" in told.evidence
    told = explain(around(State.PROCESSING, holder=drains))
    assert "the worker w1 runs attempt 1, and is draining" == told.why
    assert ("goes back to its queue" in told.next, NOW + 9_000) == (True, told.next_at)


def test_what_is_parked_comes_to_no_stock_worker_by_itself() -> None:
    """rq's own workers know only rq's list, in which a parked task is not."""
    told = explain(around(State.PENDING, fields={"parked_at": NOW - 9_000}, workers=[worker("stock")]))
    assert "no worker of its queue gpu serves the type work" == told.why
    assert any(
        "stock is a worker of rq's own" in line and "`ghostless types publish`" in line for line in told.evidence
    )


def test_a_redis_that_takes_no_writes_comes_first() -> None:
    """Nothing moves then, whatever else would be next; what is over is not concerned."""
    assert explain(around(State.PENDING, refuses="it is full")).next.startswith(
        "nothing until Redis takes writes again"
    )
    assert "Redis" not in explain(around(State.SUCCESS, refuses="it is full")).next


@pytest.mark.parametrize(
    ("server", "part"),
    [
        ({}, ""),
        ({"maxmemory": 2**20, "used_memory": 2**19, "maxmemory_policy": "noeviction"}, ""),
        ({"maxmemory": 2**20, "used_memory": 2**20, "maxmemory_policy": "allkeys-lru"}, ""),
        ({"maxmemory": 2**20, "used_memory": 2**20, "maxmemory_policy": "noeviction"}, "memory limit of 1 MiB"),
        ({"role": "slave"}, "read-only replica"),
        ({"role": "master", "rdb_last_bgsave_status": "err"}, "disk"),
    ],
)
def test_why_redis_refuses_writes(server: dict[str, Any], part: str) -> None:
    """A full, a read-only and a diskless Redis are told apart; a healthy one is not accused."""
    assert part in refusal(server)
    assert bool(part) == bool(refusal(server))


def test_signs_of_life_and_moves_are_evidence() -> None:
    """The lease, the last progress and the last moves stand behind the answer."""
    facts = around(
        State.PROCESSING,
        fields={"progress": 0.25, "progress_at": NOW - 2_000, "message": "step 5"},
        history=[entry(Event.START, actor="worker:w1")],
    )
    evidence = " | ".join(explain(facts).evidence)
    assert "holds for 12 s more" in evidence
    assert "last progress 2.0 s ago: 25 % (step 5)" in evidence
    assert "START by worker:w1" in evidence


def test_a_person_can_do_what_the_table_allows() -> None:
    """Actions are read from the transition table."""
    assert ("cancel", "pause") == explain(around(State.PENDING)).actions
    assert ("retry",) == explain(around(State.FAILED)).actions
    assert () == explain(around(State.SUCCESS)).actions
