"""The oracle: what must hold for every task that was ever accepted, checked with plain Redis commands.

It uses none of the product's code for reading, so that a fault there cannot hide a fault in the data. Each violation
starts with the letter of its rule:

a  an accepted task exists, or it is past its retention
b  its id is in exactly the indices that its state, its owner, its queue and its type demand; a PENDING task's ticket is
   in its queue exactly once, or the task is parked under its own queue and type, which the set of the queue's parked
   types names; a BLOCKED task stands with each task that it waits for, and an ended task with dependents in the index
   of what is to be told
c  every member of an index, every lease, ticket and history entry belongs to a task that demands it, and what rq keeps
   of a ticket to a task, or to a job of rq's own
d  every task that is not final has a next event that needs no human, or is PAUSED; a delivery that waits has a time,
   a bulk action that is not over a turn
e  its history replays through the transition table to its present state
f  its side effects happened at most once an attempt, and each further attempt is in the history with its reason
g  no key without TTL but those the design lists; a bulk action, or a callback's deliveries, has one once it is over
h  the ledger holds: submitted = live + final + purged + written off as lost by the doctor
i  nothing is left of finished attempts, neither processes nor folders: those that a test names
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from ghostless.jobs.keys import Keys
from ghostless.statemachine import (
    FINAL,
    INITIAL,
    RUNNING,
    TABLE,
    TRANSIENT,
    UNRECORDED,
    WAITING_FOR_TIME,
    Event,
    Reason,
    State,
)
from looks import note_look
from redis import Redis

Fields = Mapping[str, str]

BULK = ("params", "secrets", "metadata", "callback", "depends_on", "checkpoint", "result", "error", "log")
FOR_EVER = {
    *("history", "deadlines", "due", "settling", "retention", "ledger", "quarantine", "epoch", "blocked_cursor"),
    *("types", "queues", "limits", "schedules", "leftovers", "bulks", "bulks_running", "due_receivers"),
    *("tokens", "signing_key", "listed_places"),
}
FOR_EVER_EACH = {
    *("task", "leftover", *BULK, "unmet", "dependents", "state", "owned", "pending", "parked", "parked_types", "wake"),
    *("listed", "listener", "due_deliveries", "bulk_ids"),
}
FOR_A_WHILE = {"watchdog", "patrol", "prune", "http_workers"}
FOR_A_WHILE_EACH = {
    *("heartbeat", "tombstone", "idempotency", "claim", "events", "parked_entries", "alert", "alert_window"),
    *("http_worker", "session_ended", "set_aside"),
}
UNTIL_OVER_EACH = {"bulk", "deliveries"}  # for ever until what they tell of is over, then for a while: see `_lasting`
_STATES = (
    *("SCHEDULED", "BLOCKED", "PENDING", "PROCESSING", "PAUSING", "PAUSED", "CANCELLING", "RETRY_WAITING"),
    *("SUCCESS", "FAILED", "TIMEOUT_CANCELLED", "CANCELLED"),
)
LISTED_FROM = {state: number * 10**13 for number, state in enumerate(_STATES, start=1)}
"""What stands before the time in the index of a queue and type: as long as there are databases, the same."""
OF_RQ = "rq:"  # what plain jobs and workers leave there is for rq to expire; tickets are checked by rules b and c
REGISTRY = re.compile("rq:(wip|failed|finished|deferred|scheduled|canceled):.*")
TICKET = "ghostless.jobs.ticket.run"  # the function that rq is to call for a ticket, of whatever version
EXECUTIONS = "rq:executions:"  # and the id of a job


def audit(
    redis: Redis,
    keys: Keys = Keys(),  # noqa: B008
    accepted: Iterable[str] = (),
    *,
    purged: Iterable[str] = (),
    effects: Mapping[str, Sequence[int]] | None = None,
    quarantined: int = 0,
    pids: Iterable[int] = (),
    folders: Iterable[Path] = (),
) -> list[str]:
    """Return every violation in the database; an empty list when all is well.

    `accepted` are the ids that the clients saw accepted, `purged` those that may be gone without a tombstone,
    `effects` the attempts in which a task's side effect happened, `quarantined` the damaged members expected,
    `pids` and `folders` what must be gone since its attempt is over.
    """
    effects = effects or {}
    note_look(redis, keys, effects)
    picture = _look(redis, keys)
    held = len(picture.quarantine)
    found = [] if held == quarantined else [f"c: quarantine holds {held}, not {quarantined}: {picture.quarantine}"]
    purged = set(purged)
    for task_id in set(accepted) - purged:
        if task_id not in picture.tasks and not redis.exists(keys.tombstone(task_id)):
            found.append(f"a: {task_id} was accepted and is gone")
    for task_id, task in sorted(picture.tasks.items()):
        try:
            for rule in (_placed, _ticketed, _followed_up, _explained):
                found += rule(picture, keys, task_id, task)
            found += _done_once(picture, task_id, effects.get(task_id, ()))
        except (KeyError, ValueError) as error:
            found.append(f"a: {task_id} is damaged: {error!r} in {task}")
    for task_id in effects.keys() - picture.tasks.keys() - purged:
        if not redis.exists(keys.tombstone(task_id)):
            found.append(f"f: the side effect of {task_id} happened, which is no task")
    found += [*_owned(picture, keys), *_allowed_keys(picture, keys), *_added_up(picture), *_delivered(picture)]
    found += [*_worked_off(picture, keys), *_lasting(picture, keys)]
    return found + leftovers(pids, folders)


def leftovers(pids: Iterable[int] = (), folders: Iterable[Path] = ()) -> list[str]:
    """Return the processes that still live, zombies included, and the folders that still exist."""
    found = [f"i: process {pid} lives: {_described(pid)}" for pid in pids if psutil.pid_exists(pid)]
    return found + [f"i: folder {folder} exists" for folder in folders if folder.exists()]


def _described(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return f"{process.status()} {' '.join(process.cmdline())}"
    except psutil.Error as error:
        return repr(error)


RQ_NOTE = ":intermediate:first_seen:"
"""In the names of the keys in which rq notes for a day when it saw a job that a worker was about to take."""


@dataclass
class _Picture:
    """Everything in the database that the rules speak of."""

    types: dict[str, str] = field(default_factory=dict)  # key -> type
    without_ttl: set[str] = field(default_factory=set)
    tasks: dict[str, Fields] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # zset -> member -> score
    tickets: dict[str, Counter[str]] = field(default_factory=dict)  # queue -> ids, each with how often
    jobs: dict[str, Fields] = field(default_factory=dict)  # id -> rq job
    registries: dict[str, set[str]] = field(default_factory=dict)  # of rq -> ids of jobs
    parked_types: dict[str, set[str]] = field(default_factory=dict)  # queue -> types
    listed_places: dict[str, set[str]] = field(default_factory=dict)  # "" -> every "queue:type"
    unmet: dict[str, set[str]] = field(default_factory=dict)  # BLOCKED task -> tasks that it waits for
    leftovers: dict[str, Fields] = field(default_factory=dict)  # name -> record of a purged task
    leases: dict[str, str] = field(default_factory=dict)
    deliveries: dict[str, Fields] = field(default_factory=dict)  # id of a task -> records of its callback
    bulks: dict[str, Fields] = field(default_factory=dict)  # id of a bulk action -> its record
    running: list[str] = field(default_factory=list)  # ids of the bulk actions that have a turn
    due: dict[str, set[str]] = field(default_factory=dict)  # host -> what is to be delivered to it, "task delivery"
    receivers: set[str] = field(default_factory=set)  # hosts that have a turn
    history: dict[str, Fields] = field(default_factory=dict)  # entry id -> fields, oldest first
    ledger: Fields = field(default_factory=dict)
    quarantine: Fields = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def is_plain(self, name: str) -> bool:
        """Tell whether this is a job of rq's own: its record has a call, which is not that of our tickets."""
        call = self.jobs.get(name, {}).get("data", TICKET)
        return TICKET not in call

    def entries(self, task: Fields) -> list[tuple[str, Fields]]:
        """Return the entries that a task names, with empty fields where it is gone."""
        number_of_entries = task.get("entries", "0")
        numbers = range(1, int(number_of_entries) + 1) if number_of_entries.isdigit() else ()
        ids = [task.get(f"h{number}", "?") for number in numbers]
        return [(entry_id, self.history.get(entry_id, {})) for entry_id in ids]


def _look(redis: Redis, keys: Keys) -> _Picture:
    picture = _Picture()
    families = {
        keys.task(""): ("hash", picture.tasks, redis.hgetall),
        keys.rq_job(""): ("hash", picture.jobs, redis.hgetall),
        keys.rq_queue(""): ("list", picture.tickets, lambda key: Counter(redis.lrange(key, 0, -1))),
        keys.parked_types(""): ("set", picture.parked_types, redis.smembers),
        keys.listed_places: ("set", picture.listed_places, redis.smembers),
        keys.unmet(""): ("set", picture.unmet, redis.smembers),
        keys.leftover(""): ("hash", picture.leftovers, redis.hgetall),
        keys.heartbeat(""): ("string", picture.leases, redis.get),
        keys.deliveries(""): ("hash", picture.deliveries, redis.hgetall),
        keys.bulk(""): ("hash", picture.bulks, redis.hgetall),
    }
    singles = {keys.history: "stream", keys.ledger: "hash", keys.quarantine: "hash"}
    for key, kind, left in _keys_of(redis):
        if left == -2 or RQ_NOTE in key:  # gone since it was listed, or rq's own
            continue
        picture.types[key] = kind
        if left == -1:
            picture.without_ttl.add(key)
        of_no_tasks = key.startswith((keys.alert_window(""), keys.due_deliveries("")))
        of_no_tasks |= key in (keys.due_receivers, keys.http_workers)
        is_index = key.startswith(keys.prefix) and not of_no_tasks
        if kind == "zset" and is_index:  # rq's registries are rq's
            picture.scores[key] = dict(redis.zrange(key, 0, -1, withscores=True))  # type: ignore[arg-type]
        if singles.get(key, kind) != kind:
            picture.damaged.append(f"c: {key} is a {kind}, not a {singles.pop(key)}")
        for prefix, (expected, records, read) in families.items():
            if key.startswith(prefix) and kind == expected:
                records[key.removeprefix(prefix)] = read(key)
            elif key.startswith(prefix):
                picture.damaged.append(f"c: {key} is a {kind}, not a {expected}")
    picture.history = dict(redis.xrange(keys.history)) if keys.history in singles else {}
    picture.ledger = redis.hgetall(keys.ledger) if keys.ledger in singles else {}
    picture.quarantine = redis.hgetall(keys.quarantine) if keys.quarantine in singles else {}
    if picture.types.get(keys.bulks_running) == "list":
        picture.running = redis.lrange(keys.bulks_running, 0, -1)
    _look_at_deliveries(picture, redis, keys)
    _look_at_registries(picture, redis)
    return picture


def _keys_of(redis: Redis) -> Iterator[tuple[str, str, int]]:
    """Yield each key with its type and its time to live in ms."""
    names = sorted(set(redis.scan_iter(count=1000)))
    for first in range(0, len(names), 100):
        some = names[first : first + 100]
        with redis.pipeline(transaction=False) as pipeline:
            for key in some:
                pipeline.type(key).pttl(key)
            told = pipeline.execute()
        yield from zip(some, map(str, told[::2]), told[1::2], strict=True)


def _look_at_deliveries(picture: _Picture, redis: Redis, keys: Keys) -> None:
    indices = {key for key, kind in picture.types.items() if kind == "zset"}
    if keys.due_receivers in indices:
        picture.receivers = set(redis.zrange(keys.due_receivers, 0, -1))
    for key in indices:
        host = key.removeprefix(keys.due_deliveries(""))
        if host != key:
            picture.due[host] = set(redis.zrange(key, 0, -1))


def _look_at_registries(picture: _Picture, redis: Redis) -> None:
    registries = [key for key, kind in picture.types.items() if kind == "zset" and REGISTRY.fullmatch(key)]
    for key in registries:
        picture.registries[key] = {member.partition(":")[0] for member in redis.zrange(key, 0, -1)}


def _demanded(picture: _Picture, keys: Keys, task_id: str, task: Fields) -> dict[str, float | None]:
    """Return the indices that a task's state demands, with its score where the hash tells it."""
    state, entered_at = State(task["state"]), float(task["entered_at"])
    demanded: dict[str, float | None] = {keys.state(state): entered_at}
    demanded |= {keys.owned(task["owner"]): entered_at} if "owner" in task else {}
    demanded[keys.listed(_pair(task))] = LISTED_FROM.get(state, 0) + entered_at
    if state is State.PENDING:
        demanded[_waits_in(keys, task)] = entered_at
    elif state in RUNNING:
        demanded[keys.deadlines] = None
    elif state in WAITING_FOR_TIME:
        demanded[keys.due] = float(task.get("due_at", "nan"))
    elif state is State.BLOCKED:
        demanded |= {keys.dependents(other): entered_at for other in picture.unmet.get(task_id, ())}
        demanded |= {keys.due: float(task["due_at"])} if "due_at" in task else {}
    elif state in FINAL:
        demanded |= {keys.settling: None} if "dependents" in task else {}
        demanded[keys.retention] = entered_at + float(task["policy"].split(",")[-1])
    return demanded


def _waits_in(keys: Keys, task: Fields) -> str:
    """Return the index of its queue that a PENDING task stands in."""
    return keys.parked(_pair(task)) if "parked_at" in task else keys.pending(task["queue"])


def _pair(task: Fields) -> str:
    return f"{task['queue']}:{task['type']}"


def _placed(picture: _Picture, keys: Keys, task_id: str, task: Fields) -> Iterator[str]:
    state, demanded = State(task["state"]), _demanded(picture, keys, task_id, task)
    if state in TRANSIENT:
        yield f"b: {task_id} rests in {state}, which is only passed through"
    for index, score in demanded.items():
        actual = picture.scores.get(index, {}).get(task_id)
        if actual is None:
            yield f"b: {task_id} is {state} and not in {index}"
        elif score is not None and actual != score:
            yield f"b: {task_id} has the score {actual} in {index}, not {score}"
    for index, members in picture.scores.items():
        if task_id in members and index not in demanded:
            yield f"b: {task_id} is {state} and yet in {index}"


def _ticketed(picture: _Picture, keys: Keys, task_id: str, task: Fields) -> Iterator[str]:
    state = State(task["state"])
    has_ticket = state is State.PENDING and "parked_at" not in task
    counted = {queue: ids[task_id] for queue, ids in picture.tickets.items() if task_id in ids}
    if counted != ({task["queue"]: 1} if has_ticket else {}):
        yield f"b: {task_id} is {state} and has the tickets {counted}"
    job = picture.jobs.get(task_id, {})
    # A stock rq worker that runs the task keeps the job until the attempt is over, but not as a queued one.
    is_ticket = job.get("origin") == task["queue"] and job.get("status") == "queued"
    if is_ticket != has_ticket:
        yield f"b: {task_id} is {state} and its rq job is {job}"
    if "parked_at" in task and state is not State.PENDING:
        yield f"b: {task_id} is {state} and its parked_at is {task['parked_at']!r}"
    if "batched" in task and state not in RUNNING:
        yield f"b: {task_id} is {state} and its batched is {task['batched']!r}"
    for name, wanted in (("due_at", WAITING_FOR_TIME), ("worker_id", RUNNING), ("timeout_at", RUNNING)):
        if (name in task) != (state in wanted) and (name, state) != ("due_at", State.BLOCKED):
            yield f"b: {task_id} is {state} and its {name} is {task.get(name)!r}"


def _followed_up(picture: _Picture, keys: Keys, task_id: str, task: Fields) -> Iterator[str]:
    state = State(task["state"])
    if state is State.BLOCKED:
        yield from _waited_for(picture, keys, task_id, task)
    drivers = {
        **dict.fromkeys(RUNNING, picture.scores.get(keys.deadlines, {})),
        **dict.fromkeys(WAITING_FOR_TIME, picture.scores.get(keys.due, {})),
        State.PENDING: picture.tickets.get(task["queue"], []),
    }
    if state is State.PENDING and "parked_at" in task:
        is_named = task["type"] in picture.parked_types.get(task["queue"], set())
        drivers[State.PENDING] = picture.scores.get(_waits_in(keys, task), {}) if is_named else {}
    if state in drivers and task_id not in drivers[state]:
        yield f"d: {task_id} is {state} and nothing will move it"


def _waited_for(picture: _Picture, keys: Keys, task_id: str, task: Fields) -> Iterator[str]:
    """Each task that a BLOCKED one waits for will end, or has ended and is to tell; none means that its time comes."""
    unmet = picture.unmet.get(task_id, set())
    if not unmet and "due_at" not in task:
        yield f"d: {task_id} is BLOCKED and waits for nothing"
    for other in unmet:
        dependency = picture.tasks.get(other, {})
        if "dependents" not in dependency:
            yield f"d: {task_id} waits for {other}, which is {dependency.get('state', 'gone')} and will not tell it"


def _explained(picture: _Picture, keys: Keys, task_id: str, task: Fields) -> Iterator[str]:
    state, attempt, newest = "", 0, (0, 0)
    for number, (entry_id, entry) in enumerate(picture.entries(task), start=1):
        if not entry:
            yield f"e: entry {number} of {task_id} ({entry_id}) is not in the history"
            return
        where = f"e: entry {number} of {task_id} ({entry['event']}, {entry['from']} -> {entry['to']})"
        if not _legal(state, entry):
            yield f"{where} is no legal step from {state!r}"
        attempt += entry["event"] == Event.START
        position = _position(entry_id)
        checks = {
            "names another task": entry["task"] != task_id,
            f"is of attempt {entry['attempt']}, not {attempt}": int(entry["attempt"]) != attempt,
            "is not newer than the one before": position <= newest,
            f"gives the reason {entry['reason']!r}": entry["reason"] not in set(Reason),
            "names no actor": not entry["actor"],
            "has another type or queue": (entry["type"], entry["queue"]) != (task["type"], task["queue"]),
            "has another owner": entry["owner"] != task.get("owner", ""),
        }
        yield from (f"{where} {fault}" for fault, wrong in checks.items() if wrong)
        state, newest = entry["to"], position
    if state != task["state"]:
        yield f"e: {task_id} is {task['state']}, and its history ends in {state!r}"
    if attempt != int(task["attempt"]):
        yield f"e: {task_id} is at attempt {task['attempt']}, and its history has {attempt} starts"


def _legal(state: str, entry: Fields) -> bool:
    if not state:
        return entry["event"] == Event.SUBMIT and entry["from"] == "" and entry["to"] in INITIAL
    if entry["event"] in UNRECORDED or entry["from"] != state or entry["event"] not in set(Event):
        return False
    return TABLE.get((State(state), Event(entry["event"]))) == entry["to"]


def _position(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)


def _done_once(picture: _Picture, task_id: str, attempts: Sequence[int]) -> Iterator[str]:
    entries = [entry for _, entry in picture.entries(picture.tasks[task_id]) if entry]
    starts = Counter(int(entry["attempt"]) for entry in entries if entry["event"] == Event.START)
    for attempt, times in Counter(attempts).items():
        if times > 1 or attempt not in starts:
            yield f"f: the side effect of {task_id} happened {times} times in attempt {attempt}; starts: {dict(starts)}"
    for earlier, later in zip(entries, entries[1:], strict=False):
        if later["event"] == Event.START and later["attempt"] != "1" and not earlier["reason"]:
            yield f"f: attempt {later['attempt']} of {task_id} has no reason"


def _owned(picture: _Picture, keys: Keys) -> Iterator[str]:
    yield from picture.damaged
    for index, members in picture.scores.items():
        yield from (f"c: {index} lists {name!r}, which is no task" for name in members if name not in picture.tasks)
    for queue, ids in picture.tickets.items():
        strangers = [task_id for task_id in ids if task_id not in picture.tasks and not picture.is_plain(task_id)]
        yield from (f"c: the queue {queue} holds {name!r}, which is no task and no rq job" for name in strangers)
    for queue, types in picture.parked_types.items():
        empty = [name for name in types if not picture.scores.get(keys.parked(f"{queue}:{name}"))]
        yield from (f"c: {keys.parked_types(queue)} names {name!r}, and none is parked" for name in empty)
    for task_id, lease in picture.leases.items():
        task = picture.tasks.get(task_id, {})
        if task.get("state") not in RUNNING or lease != f"{task.get('worker_id')} {task.get('attempt')}":
            yield f"c: the lease of {task_id} is {lease!r}, and the task is {task.get('state')}"
    for task_id in picture.unmet:
        if picture.tasks.get(task_id, {}).get("state") != State.BLOCKED:
            yield f"c: {keys.unmet(task_id)} exists, and the task is {picture.tasks.get(task_id, {}).get('state')}"
    for index in picture.scores:
        other = index.removeprefix(keys.dependents(""))
        if other != index and "dependents" not in picture.tasks.get(other, {}):
            yield f"c: {index} exists, and the task does not know of it"
    yield from _named_places(picture, keys)
    yield from _owned_by_rq(picture, keys)
    yield from _owned_entries(picture)
    yield from _owned_values(picture, keys)


def _owned_by_rq(picture: _Picture, keys: Keys) -> Iterator[str]:
    """What rq keeps of a ticket goes with its task at the latest, or has an end by itself."""
    for task_id in picture.jobs.keys() - picture.tasks.keys():
        name = keys.rq_job(task_id)
        if name in picture.without_ttl and not picture.is_plain(task_id):
            yield f"c: {name} exists, and task {task_id} does not"
    for name in picture.without_ttl:
        task_id = name.removeprefix(EXECUTIONS)
        if task_id != name and task_id not in picture.tasks and not picture.is_plain(task_id):
            yield f"c: {name} exists, and task {task_id} does not"
    for registry, ids in picture.registries.items():
        strangers = [name for name in ids if name not in picture.tasks and not picture.is_plain(name)]
        yield from (f"c: {registry} lists {name!r}, which is no task and no rq job" for name in strangers)


def _named_places(picture: _Picture, keys: Keys) -> Iterator[str]:
    indices, named = picture.scores.keys(), picture.listed_places.get("", set())
    places = {index.removeprefix(keys.listed("")) for index in indices if index.startswith(keys.listed(""))}
    if named != places:
        yield f"b: {keys.listed_places} names {sorted(named)}, and there are tasks of {sorted(places)}"


def _owned_entries(picture: _Picture) -> Iterator[str]:
    records = [*picture.tasks.values(), *picture.leftovers.values()]
    named = {entry_id for task in records for entry_id, _ in picture.entries(task)}
    yield from (f"c: entry {entry_id} belongs to no task" for entry_id in picture.history if entry_id not in named)
    for task_id, task in picture.tasks.items():
        numbers = {int(name[1:]) for name in task if name[0] == "h" and name[1:].isdigit()}
        if numbers != set(range(1, len(picture.entries(task)) + 1)):
            yield f"c: {task_id} has {task.get('entries')} entries and the fields {sorted(numbers)}"


def _owned_values(picture: _Picture, keys: Keys) -> Iterator[str]:
    for task_id, task in picture.tasks.items():
        if ("dependencies" in task) != (keys.depends_on(task_id) in picture.types):
            number, name = task.get("dependencies"), keys.depends_on(task_id)
            yield f"c: {task_id} depends on {number} tasks, and {name} does not say so"
    for key in picture.types:
        for name in (*BULK, "tombstone"):
            task_id = key.removeprefix(getattr(keys, name)(""))
            if task_id != key and (task_id in picture.tasks) == (name == "tombstone"):
                yield f"c: {key} exists, and task {task_id} {'too' if name == 'tombstone' else 'does not'}"


def _allowed_keys(picture: _Picture, keys: Keys) -> Iterator[str]:
    for key in picture.types:
        own = key.startswith(keys.prefix)
        name, colon, _ = key.removeprefix(keys.prefix).partition(":")
        for_ever = own and name in (FOR_EVER_EACH if colon else FOR_EVER)
        for_a_while = own and name in (FOR_A_WHILE_EACH if colon else FOR_A_WHILE)
        until_over = own and colon and name in UNTIL_OVER_EACH
        if key in picture.without_ttl and not (for_ever or until_over) and not key.startswith(OF_RQ):
            yield f"g: {key} has no TTL"
        elif key not in picture.without_ttl and own and not (for_a_while or until_over):
            yield f"g: {key} has a TTL"


def _delivered(picture: _Picture) -> Iterator[str]:
    """A callback's delivery has a time when it waits, and else none."""
    if picture.receivers != picture.due.keys():
        yield f"d: {picture.receivers} have a turn, and deliveries wait for {picture.due.keys()}"
    due = {member for members in picture.due.values() for member in members}
    records = {f"{task} {name}": text for task, found in picture.deliveries.items() for name, text in found.items()}
    for name in due | records.keys():
        waits = name in records and json.loads(records[name])["state"] == "waiting"
        if waits != (name in due):
            yield f"d: the delivery {name} {'waits without' if waits else 'is done and has'} a time"


def _worked_off(picture: _Picture, keys: Keys) -> Iterator[str]:
    """A bulk action has a turn until it is over, and what it names until then."""
    open_ones = {name for name, record in picture.bulks.items() if "ended_at" not in record}
    for name in open_ones ^ set(picture.running):
        yield (
            f"d: the bulk action {name} is not over and has no turn"
            if name in open_ones
            else (f"c: {keys.bulks_running} names {name!r}, which is no bulk action that runs")
        )
    for key in picture.types:
        name = key.removeprefix(keys.bulk_ids(""))
        if name != key and name not in open_ones:
            yield f"c: {key} exists, and no such bulk action runs"


def _lasting(picture: _Picture, keys: Keys) -> Iterator[str]:
    """Such a record has no TTL until what it tells of is over, and then one."""
    over = {keys.bulk(name): "ended_at" in record for name, record in picture.bulks.items()}
    for task_id, records in picture.deliveries.items():
        over[keys.deliveries(task_id)] = all(json.loads(text)["state"] != "waiting" for text in records.values())
    for key, is_over in over.items():
        if is_over == (key in picture.without_ttl):
            yield f"g: {key} is {'over and has no TTL' if is_over else 'not over and has a TTL'}"


def _added_up(picture: _Picture) -> Iterator[str]:
    submitted, purged, lost = (int(picture.ledger.get(name, 0)) for name in ("submitted", "purged", "lost"))
    if submitted != len(picture.tasks) + purged + lost:
        yield f"h: {submitted} were submitted, {len(picture.tasks)} are here, {purged} were purged, {lost} written off"
