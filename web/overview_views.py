"""What clients get when they ask how the whole stands, by field. Times are ms since 1970, spans ms, sizes bytes."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ..statemachine import State
from .views import Number, PolicyView, Timestamp, View


class LedgerView(View):
    """The counters of tasks: submitted = live + final + purged + lost + missing."""

    submitted: Number
    live: Annotated[Number, Field(description="not final yet")]
    final: Number
    purged: Annotated[Number, Field(description="removed when their retention was over")]
    lost: Annotated[Number, Field(description="written off by the doctor")]
    missing: Annotated[int, Field(description="of which nothing is known; should be 0")]
    archived: Annotated[Number, Field(description="of the purged ones, those that were archived")]
    stale_writes: Annotated[Number, Field(description="refused writes of attempts that no longer held their task")]


class GroupView(View):
    """How far one group of listeners is."""

    name: str
    listeners: Annotated[list[str], Field(description="its consumers that are alive")]
    lag: Annotated[int | None, Field(description="entries not looked at yet; null where Redis cannot tell")]
    behind: Annotated[Number, Field(description="age of the oldest entry not looked at yet, ms")]
    pending: Annotated[Number, Field(description="entries handed out and not done with")]
    oldest_pending: Annotated[Number, Field(description="age of the oldest of these, ms")]
    parked: Annotated[Number, Field(description="entries set aside after their handler failed for good")]
    missed: Annotated[Number, Field(description="entries that were purged before they were handed out")]
    problem: Annotated[str, Field(description="what is damaged of what is kept about the group")]


class DeliveriesView(View):
    """What is to be told to callbacks."""

    hosts: Annotated[Number, Field(description="hosts for which deliveries wait")]
    late: Annotated[Number, Field(description="those of them to which nobody sends although it is time")]


class StatsView(View):
    """How the whole stands; a part that cannot be read, since something is damaged in Redis, is null."""

    states: Annotated[dict[State, Number] | None, Field(description="how many tasks are in each state")]
    ledger: LedgerView | None
    pending: Annotated[dict[str, Number] | None, Field(description="how many PENDING tasks each queue holds")]
    watchdog: Annotated[
        dict[str, str | int] | None,
        Field(
            description="who swept last (`actor`) and when (`swept_at`), and once there was one how long the last round"
            " of the audit took (`audit_round`, ms); null when nobody swept lately"
        ),
    ]
    workers: Annotated[Number | None, Field(description="how many are registered, ours and rq's")]
    listeners: list[GroupView] | None
    deliveries: DeliveriesView | None
    damaged: Annotated[dict[str, str], Field(description="why parts cannot be read, by their names")]


class QueueView(View):
    """One queue."""

    name: str
    state: Literal["running", "paused"]
    pending: Annotated[Number, Field(description="PENDING tasks, the parked ones included")]
    parked: Annotated[dict[str, Number], Field(description="those that no worker serves, by type")]


class QueueList(View):
    """Every queue that a task, a task type or a worker names."""

    queues: list[QueueView]


class TypeView(View):
    """One task type, as workers published it."""

    name: str
    queue: Annotated[str, Field(description="where its tasks go unless a submit says otherwise")]
    policy: PolicyView
    params_schema: Annotated[
        dict[str, Any], Field(alias="schema", description="JSON Schema that the params of a submit must fit")
    ]
    description: str


class TypeList(View):
    """Every published task type, by name."""

    types: list[TypeView]


class RecurrenceView(View):
    """When a schedule is due."""

    cron: Annotated[str | None, Field(description="a cron expression of five fields, or six with seconds first")]
    zone: Annotated[str, Field(description="the time zone of the cron expression")]
    every: Annotated[int | None, Field(description="else the interval, ms")]
    start: Annotated[Number, Field(description="from when the interval counts, ms since 1970; 0 for a cron expression")]


class ScheduleView(View):
    """A task that is submitted again and again."""

    name: str
    type: Annotated[str, Field(description="of the tasks that it submits")]
    recurrence: RecurrenceView
    params: Annotated[dict[str, Any], Field(description="of each run")]
    queue: Annotated[str | None, Field(description="null: that of the type")]
    misfire: Annotated[Literal["skip", "once", "all"], Field(description="what becomes of runs nobody was there for")]
    overlap: Annotated[Literal["allow", "skip"], Field(description="whether a run may begin before the last is over")]
    source: Annotated[str, Field(description="who registered it: `cli`, a person, or `task`, code")]
    paused: Annotated[bool, Field(description="nothing is submitted, nor made up for once it goes on")]
    due: Annotated[Timestamp, Field(description="the next run, ms since 1970; while paused, what was to be the next")]
    last_due: Annotated[int | None, Field(description="when the last run was due, submitted or left out")]
    last_task: Annotated[str | None, Field(description="the last task that was submitted")]
    last_problem: Annotated[str, Field(description="why the last run was left out; empty when it was submitted")]
    skipped: Annotated[Number, Field(description="runs left out since it was registered")]
    declared: Annotated[bool, Field(description="by code, also where a person's word stands here now")]


class DamagedSchedule(View):
    """A schedule whose record cannot be read; an operator's `ghostless schedules` says why."""

    name: str
    damaged: Literal[True]


class ScheduleList(View):
    """Every schedule, by name."""

    schedules: list[ScheduleView | DamagedSchedule]


class GpuView(View):
    """The memory of one GPU; zeros where NVML does not tell."""

    used: Number
    total: Number
    device: Annotated[str, Field(description="number or UUID, as in CUDA_VISIBLE_DEVICES")]


class RecordView(View):
    """What a worker of ours told of itself with its last beat."""

    version: Annotated[str, Field(description="of Ghostless")]
    beat_at: int | None
    lease: Annotated[Number, Field(description="length of its leases, ms")]
    types: Annotated[list[str], Field(description="the task types that it serves, 100 at most")]
    set_aside: Annotated[dict[str, str], Field(description="types that it does not take for a while, and why")]
    task_id: str | None
    attempt: int | None
    since: Annotated[int | None, Field(description="when the attempt began")]
    lease_age: Annotated[int | None, Field(description="since the lease was last renewed, ms")]
    stopping: Annotated[str, Field(description="why the attempt was asked to stop; empty while it may run on")]
    kill_at: Annotated[int | None, Field(description="when its process is killed, if it does not stop before")]
    unwritten: Annotated[dict[str, str], Field(description="tasks whose end it cannot write, and why")]
    horse_pid: int | None
    horse_rss: Annotated[int | None, Field(description="memory of the process that runs handlers, bytes")]
    gpus: list[GpuView]
    loading_since: Annotated[int | None, Field(description="while no process is ready to run handlers")]
    drain_ends_at: Annotated[int | None, Field(description="while it stops: when its task is asked to do so too")]
    health: Annotated[str | None, Field(description="where it answers for its health, address and port")]


class WorkerView(View):
    """One worker that is registered with rq."""

    name: str
    state: Annotated[str, Field(description="`loading`, `draining`, `silent`, or what rq says, such as `idle`, `busy`")]
    queues: list[str]
    host: str
    pid: int | None
    heartbeat_at: int | None
    started_at: int | None
    done: Annotated[Number | None, Field(description="jobs and tasks that it finished; null for one over HTTP")]
    failed: Annotated[Number | None, Field(description="null for one over HTTP")]
    version: Annotated[str, Field(description="of rq")]
    silent_for: Annotated[int | None, Field(description="ms, once that is longer than its lease")]
    record: Annotated[RecordView | None, Field(description="null for workers of rq's own")]
    over_http: Annotated[
        bool, Field(description="it has no connection to Redis: host, pid, counts and version are not known")
    ]
    types_by_queue: Annotated[dict[str, list[str]], Field(description="what it serves, if it works over HTTP")]


class WorkerList(View):
    """Every registered worker, by name."""

    workers: list[WorkerView]
