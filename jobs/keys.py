"""Every Redis key the product uses, one function each, with its Redis type.

The scripts get the same names rendered before them (`script_names`), so no name is spelled twice.
rq's own keys are named in `jobs/rq_keys.py`.
"""

from dataclasses import dataclass

from ..lua.loader import VALUES
from .rq_keys import INTERMEDIATE_SUFFIX, QUEUES, WORKER_RECORD, RqKeys

ARCHIVE_DEMAND = "archive"
"""The field of `Keys.limits` that is there while no task may be purged before it was archived."""

LISTED_SINCE = "listed_since"
"""The field of `Keys.limits` that tells since when (ms) every task stands in `Keys.listed`: see `lua/patrol.lua`."""

SET_ASIDE_LIFE = 604_800_000
"""Milliseconds for which what stood in the place of an index is kept for a person: a week."""

CALLBACKS = "callbacks:plan"
"""The group in which listeners read which tasks with a callback ended; there while somebody delivers callbacks."""

SINGLE_INDICES = ("deadlines", "due", "settling", "retention")
INDICES = ("state", "owned", "listed", "pending", "parked", "dependents")
"""The sorts of sorted sets in which tasks stand: the one of a kind, and those of which there is one for each name.
`lua/places.lua` says which task must stand in which."""

COUNTERS = ("submitted", "purged", "lost", "archived", "stale_writes")
"""The fields of `Keys.ledger`."""

BEAT = "beat:"
"""Before the name of a consumer in `Keys.listener`: the field that tells when it last asked, in ms."""


@dataclass(frozen=True, slots=True)
class Keys(RqKeys):
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

    def callback(self, task_id: str) -> str:
        """string: the URL to which each of its ends is told, when there is one."""
        return f"{self.prefix}callback:{task_id}"

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

    def deliveries(self, task_id: str) -> str:
        """hash: the deliveries of a task's callback, also of a purged one, by id, as JSON; with TTL once none waits."""
        return f"{self.prefix}deliveries:{task_id}"

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

    def owned(self, owner: str) -> str:
        """zset: the tasks of one owner by the time they entered their state."""
        return f"{self.prefix}owned:{owner}"

    def listed(self, place: str) -> str:
        """zset: the tasks of one "queue:type", by state and in each by the time they entered it: see `LISTED_FROM`."""
        return f"{self.prefix}listed:{place}"

    @property
    def listed_places(self) -> str:
        """set: every "queue:type" of which there are tasks."""
        return f"{self.prefix}listed_places"

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

    def http_worker(self, worker_id: str) -> str:
        """string with TTL: what is known of a worker over HTTP, as JSON."""
        return f"{self.prefix}http_worker:{worker_id}"

    @property
    def http_workers(self) -> str:
        """zset: the workers over HTTP by the time at which each is forgotten, with TTL."""
        return f"{self.prefix}http_workers"

    # Bulk actions

    def bulk(self, bulk_id: str) -> str:
        """hash: a bulk action: its wish, how far it is, what became of the tasks; with TTL once it has ended."""
        return f"{self.prefix}bulk:{bulk_id}"

    def bulk_ids(self, bulk_id: str) -> str:
        """list: the ids of tasks that a bulk action which names them has still to look at."""
        return f"{self.prefix}bulk_ids:{bulk_id}"

    @property
    def bulks(self) -> str:
        """list: the ids of the last bulk actions, the newest first, capped."""
        return f"{self.prefix}bulks"

    @property
    def bulks_running(self) -> str:
        """list: the ids of the bulk actions that run, in the order of their next turn."""
        return f"{self.prefix}bulks_running"

    # One listener's group

    def listener(self, group: str) -> str:
        """hash: how many entries a group has seen, how many were purged before, when each consumer last asked."""
        return f"{self.prefix}listener:{group}"

    def parked_entries(self, group: str) -> str:
        """list: entries that a group's handler could not handle, the newest first, as JSON, capped and with TTL."""
        return f"{self.prefix}parked_entries:{group}"

    def due_deliveries(self, host: str) -> str:
        """zset: what is to be delivered to one host, "task delivery", by the time at which to try next."""
        return f"{self.prefix}due_deliveries:{host}"

    @property
    def due_receivers(self) -> str:
        """zset: the hosts for which deliveries wait, by the time of their turn."""
        return f"{self.prefix}due_receivers"

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

    def session_ended(self, session_id: str) -> str:
        """string with TTL: that a browser's session was ended, for as long as its cookies might be good."""
        return f"{self.prefix}session_ended:{session_id}"

    @property
    def queues(self) -> str:
        """hash: every queue that ever held a task -> "running" or "paused"."""
        return f"{self.prefix}queues"

    @property
    def limits(self) -> str:
        """hash: what holds for every process until it is changed: that tasks are archived before they are purged, and
        since when each has its entry in `listed`.
        """
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

    def set_aside(self, name: str) -> str:
        """any with TTL: what stood in the place of an index of this name, of whatever type."""
        return f"{self.prefix}set_aside:{name}"

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
        """hash: where the watchdogs' audit goes on, and from when on."""
        return f"{self.prefix}patrol"

    @property
    def prune(self) -> str:
        """hash: where the watchdogs' look through the indices goes on, and from when on."""
        return f"{self.prefix}prune"

    @property
    def epoch(self) -> str:
        """string: a random id written once per database."""
        return f"{self.prefix}epoch"

    @property
    def live(self) -> str:
        """pub/sub channel: progress and log lines for those who listen now."""
        return f"{self.prefix}live"


def index_names(keys: Keys) -> list[str]:
    """Return the names of the indices over tasks: whole, or up to the colon behind which there are several."""
    return [*(getattr(keys, name) for name in SINGLE_INDICES), *(getattr(keys, name)("") for name in INDICES)]


def pair(queue: str, task_type: str) -> str:
    """Return what `Keys.listed` and `Keys.parked` call the place of one type in one queue."""
    return f"{queue}:{task_type}"


# What the scripts build names of: prefix and id, and names that stand for themselves.
_BY_ID = (
    "task", *VALUES, "heartbeat", "http_worker", "tombstone", "leftover", "state", "owned", "listed",
    "pending", "parked", "parked_types", "wake", "idempotency", "claim", "rq_queue", "rq_job", "rq_worker",
    "rq_executions", "rq_commands", "bulk", "bulk_ids", "deliveries", "due_deliveries", "set_aside",
)  # fmt: skip
_FIXED = (
    "history", "deadlines", "due", "settling", "retention", "leftovers", "types", "queues", "limits", "ledger",
    "quarantine", "watchdog", "blocked_cursor", "patrol", "prune", "epoch", "live", "bulks", "bulks_running",
    "listed_places", "http_workers",
)  # fmt: skip


def script_names(keys: Keys) -> dict[str, str]:
    """Return what the scripts need to build a name: fixed names whole, the others up to their id."""
    return {
        **{name: getattr(keys, name) for name in _FIXED},
        **{name: getattr(keys, name)("") for name in _BY_ID},
        "rq_queues": QUEUES,
        "rq_suspended": keys.rq_suspended,
        "worker_record": WORKER_RECORD,
        "archive_demand": ARCHIVE_DEMAND,
        "set_aside_life": str(SET_ASIDE_LIFE),
        "listed_since": LISTED_SINCE,
        "beat": BEAT,
        "callback_listener": keys.listener(CALLBACKS),
        "rq_intermediate_suffix": INTERMEDIATE_SUFFIX,
    }
