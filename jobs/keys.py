"""Every Redis key the product uses, one function each, with its Redis type.

The scripts get the same names rendered before them (`script_names`), so no name is spelled twice.
rq's own keys are named here too, since the delivery ticket of a task stands in them.
"""

from dataclasses import dataclass

from rq.command import PUBSUB_CHANNEL_TEMPLATE
from rq.executions import WORKER_EXECUTIONS_KEY_TEMPLATE, ExecutionRegistry
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job
from rq.queue import Queue
from rq.registry import StartedJobRegistry
from rq.suspension import WORKERS_SUSPENDED
from rq.worker import BaseWorker
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY

from ..lua.loader import VALUES

WORKER_RECORD = "ghostless"
"""The field of a worker's hash in which it tells of itself with each beat, as JSON."""

ARCHIVE_DEMAND = "archive"
"""The field of `Keys.limits` that is there while no task may be purged before it was archived."""

BEAT = "beat:"
"""Before the name of a consumer in `Keys.listener`: the field that tells when it last asked, in ms."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Names under one prefix, so that several teams can share a Redis."""

    prefix: str = "ghostless:"

    # One task

    def task(self, task_id: str) -> str:
        """hash: the task's small fields, every value at most 64 bytes."""
        return f"{self.prefix}task:{task_id}"

    def params(self, task_id: str) -> str:
        """string: the params as JSON, secrets masked."""
        return f"{self.prefix}params:{task_id}"

    def secrets(self, task_id: str) -> str:
        """string: the params with their secrets as JSON, for the worker alone, when there are any."""
        return f"{self.prefix}secrets:{task_id}"

    def metadata(self, task_id: str) -> str:
        """string: the submitter's own data as JSON, when there is any."""
        return f"{self.prefix}metadata:{task_id}"

    def depends_on(self, task_id: str) -> str:
        """string: the ids of the tasks it depends on as a JSON list, when there are any."""
        return f"{self.prefix}depends_on:{task_id}"

    def unmet(self, task_id: str) -> str:
        """set: those of the tasks it depends on that a BLOCKED task still waits for."""
        return f"{self.prefix}unmet:{task_id}"

    def dependents(self, task_id: str) -> str:
        """zset: the BLOCKED tasks that wait for this one, by the time since when they do."""
        return f"{self.prefix}dependents:{task_id}"

    def checkpoint(self, task_id: str) -> str:
        """string: what the last attempt saved to go on from, as JSON."""
        return f"{self.prefix}checkpoint:{task_id}"

    def result(self, task_id: str) -> str:
        """string: the result as JSON."""
        return f"{self.prefix}result:{task_id}"

    def error(self, task_id: str) -> str:
        """string: the text of the last failure."""
        return f"{self.prefix}error:{task_id}"

    def log(self, task_id: str) -> str:
        """list: the last lines that the handler logged, capped."""
        return f"{self.prefix}log:{task_id}"

    def heartbeat(self, task_id: str) -> str:
        """string with TTL: the lease of the running attempt, "worker attempt"."""
        return f"{self.prefix}heartbeat:{task_id}"

    def tombstone(self, task_id: str) -> str:
        """string with TTL: what a purged task was, "STATE purged_at [archive]", while its id stays taken."""
        return f"{self.prefix}tombstone:{task_id}"

    def leftover(self, name: str) -> str:
        """hash: a purged task's record, as long as entries of its history are left to delete."""
        return f"{self.prefix}leftover:{name}"

    # Indices over tasks

    @property
    def history(self) -> str:
        """stream: every transition of every task."""
        return f"{self.prefix}history"

    @property
    def deadlines(self) -> str:
        """zset: running tasks by the time at which the watchdog must next look at them."""
        return f"{self.prefix}deadlines"

    @property
    def due(self) -> str:
        """zset: SCHEDULED and RETRY_WAITING tasks, and BLOCKED ones with a time, by the time that ends their wait."""
        return f"{self.prefix}due"

    @property
    def settling(self) -> str:
        """zset: final tasks whose dependents were not all told yet, by the time at which to tell them."""
        return f"{self.prefix}settling"

    @property
    def retention(self) -> str:
        """zset: final tasks by the time of their purge."""
        return f"{self.prefix}retention"

    @property
    def leftovers(self) -> str:
        """list: the names of the leftover records, the oldest first."""
        return f"{self.prefix}leftovers"

    def state(self, state: str) -> str:
        """zset: the tasks in one state by the time they entered it."""
        return f"{self.prefix}state:{state}"

    def pending(self, queue: str) -> str:
        """zset: the PENDING tasks of one queue by the time they entered it."""
        return f"{self.prefix}pending:{queue}"

    def parked(self, place: str) -> str:
        """zset: the PENDING tasks of one "queue:type" that no worker that asked serves, by the time they entered it."""
        return f"{self.prefix}parked:{place}"

    def parked_types(self, queue: str) -> str:
        """set: the task types that are parked in one queue."""
        return f"{self.prefix}parked_types:{queue}"

    def wake(self, queue: str) -> str:
        """list: capped hints that wake an idle worker; losing one costs a poll."""
        return f"{self.prefix}wake:{queue}"

    def idempotency(self, key: str) -> str:
        """string with TTL: idempotency key -> task id."""
        return f"{self.prefix}idempotency:{key}"

    def claim(self, worker_id: str) -> str:
        """string with TTL: the worker's last claim, "token task", to answer a repeated call alike."""
        return f"{self.prefix}claim:{worker_id}"

    def events(self, worker_id: str) -> str:
        """list: the last events of a worker, the newest first, capped and with TTL."""
        return f"{self.prefix}events:{worker_id}"

    # One listener's group

    def listener(self, group: str) -> str:
        """hash: how many entries a group has seen, how many were purged before, when each consumer last asked."""
        return f"{self.prefix}listener:{group}"

    def parked_entries(self, group: str) -> str:
        """list: entries that a group's handler could not handle, the newest first, as JSON, capped and with TTL."""
        return f"{self.prefix}parked_entries:{group}"

    def alert(self, rule: str) -> str:
        """string with TTL: the entry for which an alert was sent last; while it is there, no other one is."""
        return f"{self.prefix}alert:{rule}"

    def alert_window(self, rule: str) -> str:
        """zset: the entries that an alert's rule counts, by their time, capped and with TTL."""
        return f"{self.prefix}alert_window:{rule}"

    # The whole database

    @property
    def types(self) -> str:
        """hash: task type -> its schema and policy as JSON, published by workers."""
        return f"{self.prefix}types"

    @property
    def schedules(self) -> str:
        """hash: schedule -> what it submits and when, as JSON."""
        return f"{self.prefix}schedules"

    @property
    def tokens(self) -> str:
        """hash: id of a token -> whose it is, what it allows and a digest of its secret, as JSON."""
        return f"{self.prefix}tokens"

    @property
    def signing_key(self) -> str:
        """string: the key with which the web servers sign stream tokens and sessions."""
        return f"{self.prefix}signing_key"

    @property
    def queues(self) -> str:
        """hash: every queue that ever held a task -> "running" or "paused"."""
        return f"{self.prefix}queues"

    @property
    def limits(self) -> str:
        """hash: what holds for every process until it is changed: that tasks are archived before they are purged."""
        return f"{self.prefix}limits"

    @property
    def ledger(self) -> str:
        """hash: counters that must add up: submitted = live + final + purged + lost, which the doctor wrote off; how
        many of the purged were archived; writes refused as stale.
        """
        return f"{self.prefix}ledger"

    @property
    def quarantine(self) -> str:
        """hash: damaged members taken out of an index, "index id" -> what was wrong."""
        return f"{self.prefix}quarantine"

    @property
    def watchdog(self) -> str:
        """hash: when the last sweep was, and from when on leases are judged."""
        return f"{self.prefix}watchdog"

    @property
    def blocked_cursor(self) -> str:
        """string: how many BLOCKED tasks the watchdog has looked at again in this round; gone between two rounds."""
        return f"{self.prefix}blocked_cursor"

    @property
    def patrol(self) -> str:
        """hash: where the watchdogs' audit goes on, and when it last went on."""
        return f"{self.prefix}patrol"

    @property
    def epoch(self) -> str:
        """string: a random id written once per database."""
        return f"{self.prefix}epoch"

    @property
    def live(self) -> str:
        """pub/sub channel: progress and log lines for those who listen now."""
        return f"{self.prefix}live"

    # rq's own keys

    @staticmethod
    def rq_queue(queue: str) -> str:
        """list: the ids of the tickets (and plain rq jobs) of one queue."""
        return f"{Queue.redis_queue_namespace_prefix}{queue}"

    @staticmethod
    def rq_intermediate(queue: str) -> str:
        """list: plain rq jobs of one queue on their way to a horse."""
        return IntermediateQueue.get_intermediate_queue_key(Keys.rq_queue(queue))

    @staticmethod
    def rq_job(task_id: str) -> str:
        """hash: the delivery ticket of a PENDING task."""
        return f"{Job.redis_job_namespace_prefix}{task_id}"

    @staticmethod
    def rq_worker(worker_id: str) -> str:
        """hash: a worker as rq registers it, with our record of it in the field `WORKER_RECORD`."""
        return f"{BaseWorker.redis_worker_namespace_prefix}{worker_id}"

    @staticmethod
    def rq_executions(task_id: str) -> str:
        """zset: the executions of a ticket by stock rq workers."""
        return ExecutionRegistry.key_template.format(task_id)

    @staticmethod
    def rq_commands(worker_id: str) -> str:
        """pub/sub channel: commands to one worker."""
        return PUBSUB_CHANNEL_TEMPLATE % worker_id

    @staticmethod
    def rq_worker_executions(worker_id: str) -> str:
        """set: the executions of plain jobs that a worker has begun, "job:execution"."""
        return WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker_id)

    @staticmethod
    def rq_started(queue: str) -> str:
        """zset: the executions of a queue's plain jobs by the time at which rq holds them for abandoned."""
        return StartedJobRegistry.key_template.format(queue)

    @staticmethod
    def rq_workers_of(queue: str) -> str:
        """set: the names of the hashes of the workers that serve a queue."""
        return WORKERS_BY_QUEUE_KEY % queue

    @property
    def rq_workers(self) -> str:
        """set: the names of the hashes of all workers."""
        return REDIS_WORKER_KEYS

    @property
    def rq_suspended(self) -> str:
        """string: there while `rq suspend` holds."""
        return WORKERS_SUSPENDED


def parking(queue: str, task_type: str) -> str:
    """Return what `Keys.parked` calls the place of one type in one queue."""
    return f"{queue}:{task_type}"


# What the scripts build names of: prefix and id, and names that stand for themselves.
_BY_ID = (
    "task", *VALUES, "heartbeat", "tombstone", "leftover", "state",
    "pending", "parked", "parked_types", "wake", "idempotency", "claim", "rq_queue", "rq_job", "rq_worker",
    "rq_executions", "rq_commands",
)  # fmt: skip
_FIXED = (
    "history", "deadlines", "due", "settling", "retention", "leftovers", "types", "queues", "limits", "ledger",
    "quarantine", "watchdog", "blocked_cursor", "patrol", "epoch", "live",
)  # fmt: skip


def script_names(keys: Keys) -> dict[str, str]:
    """Return what the scripts need to build a name: fixed names whole, the others up to their id."""
    return {
        **{name: getattr(keys, name) for name in _FIXED},
        **{name: getattr(keys, name)("") for name in _BY_ID},
        "rq_queues": Queue.redis_queues_keys,
        "rq_suspended": keys.rq_suspended,
        "worker_record": WORKER_RECORD,
        "archive_demand": ARCHIVE_DEMAND,
        "beat": BEAT,
        "rq_intermediate_suffix": IntermediateQueue.get_intermediate_queue_key(""),
    }
