"""What is to be told of each case of `explain`: why, what is next and when, the evidence, and what a person can do."""

from collections.abc import Callable
from dataclasses import dataclass

from .explain_scenes import (
    KILLED_AT,
    World,
    asked_to_stop,
    batched,
    batched_and_begun,
    blocked,
    cancelled,
    cancelling,
    failed_by_exception,
    failed_by_memory,
    frozen_among_others,
    frozen_worker,
    host_lost,
    in_its_place,
    lease_over,
    lease_over_unwatched,
    no_worker,
    no_worker_of_the_type,
    out_of_time,
    paused,
    queue_paused,
    redis_full,
    retry_waiting,
    running,
    running_and_heard_of,
    scheduled,
    scheduled_unwatched,
    succeeded,
    suspended,
    ticket_lost,
    unwritten,
)

When = Callable[[World, str], int | None]
"""What the time of the next step is, by what stands in Redis."""


def at_no_time(world: World, task_id: str) -> None:
    """Nothing that the clock decides is next."""


def when_due(world: World, task_id: str) -> int | None:
    """It waits for its time."""
    return world.client.get(task_id).due_at


def at_its_timeout(world: World, task_id: str) -> int | None:
    """Its attempt may run until then."""
    return world.client.get(task_id).timeout_at


def when_looked_at(world: World, task_id: str) -> int | None:
    """A watchdog looks at it then."""
    return int(world.redis.zscore(world.client.store.keys.deadlines, task_id) or 0)


def after_the_grace(world: World, task_id: str) -> int | None:
    """Its process is killed then."""
    return world.client.get(task_id).entered_at + round(1000 * world.client.settings.grace)


def when_killed(world: World, task_id: str) -> int | None:
    """Its worker has said when."""
    return KILLED_AT


def when_purged(world: World, task_id: str) -> int | None:
    """Its retention is over."""
    task = world.client.get(task_id)
    return task.entered_at + task.policy.retention


ADVICE = "no watchdog swept lately, so nobody would notice a lost worker or ticket: start `ghostless watchdog`"
SUBMITTED, STARTED = "* ago: SUBMIT by client", "* ago: START by worker:hand"
HEALTH = "the process of its handlers held 512 MiB then; it answers for its health at 10.0.0.7:9000"
SIGNS = ("its lease holds for * s more", f"hand beat * ago; {HEALTH}", STARTED)
KEPT = "it is kept until its retention ends"
UNLESS_RETRIED = f"nothing, unless you `ghostless retry ID`; {KEPT}"
MEMORY = "the process running the handler died: signal 9 (SIGKILL), probably out of memory: *"


@dataclass(frozen=True)
class Case:
    """One case. Sentences are patterns of whole ones, with ID for the task's id and * for times."""

    make: Callable[[World], str]
    why: str
    next: str
    evidence: tuple[str, ...]  # all of these lines, among others
    when: When = at_no_time
    actions: tuple[str, ...] = ("cancel", "pause")  # what a person can do


CASES = [
    Case(
        no_worker, "no worker listens on its queue work", "nothing until `ghostless worker work` runs",
        (ADVICE, SUBMITTED),
    ),
    Case(
        frozen_worker,
        "every worker of its queue work has fallen silent: w1 has not beaten for 10 min",
        "nothing until one of them goes on, or another `ghostless worker work` runs",
        (SUBMITTED,),
    ),
    Case(
        frozen_among_others,
        "no worker of its queue work serves the type work",
        "the first worker that serves it starts it: `ghostless worker work --tasks MODULE`",
        ("w1 has not beaten for 10 min", "w2 serves other"),
    ),
    Case(
        no_worker_of_the_type,
        "no worker of its queue work serves the type work",
        "the first worker that serves it starts it: `ghostless worker work --tasks MODULE`",
        ("w1 serves other",),
    ),
    Case(queue_paused, "its queue work is paused", "nothing until `ghostless queues resume work`", (SUBMITTED,)),
    Case(suspended, "all workers are suspended", "nothing until `rq resume`", (SUBMITTED,)),
    Case(
        in_its_place,
        "it is number 3 of 3 in the queue work, and its turn has not come",
        "the worker w1 starts it when its turn comes, in about 30 s when tasks take as long as lately",
        ("work is served by w1", "submitted * ago"),
    ),
    Case(
        ticket_lost,
        "its ticket is not in the queue work: a worker is just taking it, or it was lost",
        "the watchdog makes a new one if it was lost, once a watchdog runs: `ghostless watchdog`",
        (ADVICE,),
    ),
    Case(
        scheduled, "it was submitted for a later time", "it goes to its queue", (SUBMITTED,), when_due, ("cancel",),
    ),
    Case(
        scheduled_unwatched,
        "it was submitted for a later time",
        "it goes to its queue, once a watchdog runs: `ghostless watchdog`",
        (ADVICE,),
        when_due,
        ("cancel",),
    ),
    Case(
        retry_waiting,
        "attempt 1 ended: ValueError: no such model: xl",
        "it goes back to its queue for attempt 2",
        ("failures so far: 1; retried at most 3 times", "* ago: FAIL by worker:hand: ValueError: no such model: xl"),
        when_due,
    ),
    Case(
        blocked,
        "it waits for 1 of the 1 tasks that it depends on: first, which is PROCESSING for * s",
        "the last of them to end in SUCCESS releases it; the first to end otherwise cancels it",
        ("`ghostless explain first`", SUBMITTED),
        actions=("cancel",),
    ),
    Case(
        running,
        "the worker hand runs attempt 1",
        "it ends by itself, or its worker stops it at its timeout",
        (*SIGNS, "it reported no progress so far"),
        at_its_timeout,
    ),
    Case(
        batched,
        "the worker hand started attempt 1 together with other short tasks, and runs one after the other: this one may "
        "not have begun",
        "it ends by itself, or its worker stops it at its timeout",
        SIGNS,
        at_its_timeout,
    ),
    Case(
        batched_and_begun,
        "the worker hand runs attempt 1",
        "it ends by itself, or its worker stops it at its timeout",
        SIGNS,
        at_its_timeout,
    ),
    Case(
        unwritten,
        "the worker hand holds the end of attempt 1, and cannot write it: retention: expected zset, got string",
        "it tries again until it can. The watchdog puts right what it can; for the rest: `ghostless doctor --repair`",
        SIGNS,
    ),
    Case(
        running_and_heard_of,
        "the worker hand runs attempt 1",
        "it ends by itself, or its worker stops it at its timeout",
        (*SIGNS, "last progress * ago: 25 % (step 5)"),
        at_its_timeout,
    ),
    Case(
        asked_to_stop,
        "the worker hand has asked attempt 1 to stop: no progress for 60 s",
        "it ends as soon as its handler stops, or its worker kills its process",
        (*SIGNS, "it reported no progress so far", ADVICE),
        when_killed,
    ),
    Case(
        lease_over,
        "its worker hand has gone silent: the lease of attempt 1 is over",
        "the watchdog takes it away from that worker; a beat later if most of what runs has fallen silent too",
        ("the last sweep was * ago", f"hand has not beaten for 10 min; {HEALTH}", STARTED),
        when_looked_at,
    ),
    Case(
        lease_over_unwatched,
        "its worker hand has gone silent: the lease of attempt 1 is over",
        "nothing until a watchdog runs: `ghostless watchdog`",
        (ADVICE, STARTED),
    ),
    Case(
        cancelling,
        "it was asked to stop by cli:ann: wrong prompt, and its worker hand has not confirmed it yet",
        "its worker stops it now; should its handler not stop, the worker kills its process after the grace, "
        "and the watchdog ends it if that fails",
        (*SIGNS, "* ago: CANCEL by cli:ann: wrong prompt"),
        after_the_grace,
        (),
    ),
    Case(
        paused, "it was paused by cli:ann: lunch", "nothing until `ghostless resume ID`",
        ("* ago: PAUSE by cli:ann: lunch",), actions=("cancel", "resume"),
    ),
    Case(
        redis_full,
        "no worker listens on its queue work",
        "nothing until Redis takes writes again: it is at its memory limit of 0 MiB; "
        "then nothing until `ghostless worker work` runs",
        (SUBMITTED,),
    ),
    Case(
        succeeded, "attempt 1 completed after * s", f"nothing; {KEPT}", ("* ago: COMPLETE by worker:hand",),
        when_purged, (),
    ),
    Case(
        failed_by_exception,
        "attempt 1 failed: ValueError: no such model: xl",
        UNLESS_RETRIED,
        ("failures so far: 1; retried at most 3 times", "* ago: FAIL by worker:hand: ValueError: no such model: xl"),
        when_purged,
        ("retry",),
    ),
    Case(
        failed_by_memory,
        f"attempt 1 failed: {MEMORY}",
        UNLESS_RETRIED,
        ("failures so far: 1; retried at most 3 times", f"* ago: FAIL by worker:hand: {MEMORY}"),
        when_purged,
        ("retry",),
    ),
    Case(
        out_of_time,
        "it was given up; attempt 1 ended: ran longer than allowed, 600 s: stopped when asked after 0.1 s",
        UNLESS_RETRIED,
        ("timeouts so far: 1; retried at most 2 times", "* ago: GIVE_UP by policy: timeouts used up: 2 *"),
        when_purged,
        ("retry",),
    ),
    Case(
        host_lost,
        "it was given up; attempt 1 ended: no heartbeat from worker hand*",
        UNLESS_RETRIED,
        ("lost processes so far: 1; retried at most 0 times", "* ago: TIMEOUT by watchdog:test: no heartbeat from *"),
        when_purged,
        ("retry",),
    ),
    Case(
        cancelled, "it was cancelled by cli:ann: wrong prompt", f"nothing; {KEPT}",
        ("* ago: CANCEL by cli:ann: wrong prompt",), when_purged, (),
    ),
]  # fmt: skip
