"""What the doctor tells of each case in `doctor_cases`: rule, task, what is wrong, and what becomes of it.

A # stands for a time, or an id, that differs from run to run.
"""

LINES: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "not in an index": (("b", "t1", "it is PENDING and not in ghostless:state:PENDING", "repairable"),),
    "at a wrong time": (("b", "t1", "it has the score 5 in ghostless:owned:ann:[a-z]*, not #", "repairable"),),
    "in an index too many": (("b", "t1", "it is PENDING and yet in ghostless:due", "repairable"),),
    "an index of another type": (
        ("c", "-", "ghostless:owned:ann:[a-z]* is a string, not a zset", "repairable"),
        ("c", "-", "CORRUPT ghostless:owned:ann:[a-z]*: expected zset, got string", "repairable"),
    ),
    "not in its listing": (("b", "t1", "it is PENDING and not in ghostless:listed:q:demo.add", "repairable"),),
    "in no listing yet": (
        ("b", "-", "1 tasks were not where listings by queue or type look: ghostless:listed:*", "repairable"),
    ),
    "a listing without a name": (
        ("b", "t1", "it is PENDING, and ghostless:listed_places does not name q:demo.add", "repairable"),
    ),
    "its due_at is gone": (("b", "t1", "its due_at is missing", "repairable"),),
    "a queue without a name": (("b", "t1", "it is PENDING and its queue is not in ghostless:queues", "repairable"),),
    "parked, and its type not named": (
        ("d", "t1", "it is parked, and ghostless:parked_types:q does not name its type", "repairable"),
    ),
    "types of another type": (
        ("c", "-", "ghostless:parked_types:q is a string, not a set", "repairable"),
        ("c", "-", "CORRUPT ghostless:parked_types:q: expected set, got string", "repairable"),
    ),
    "a parked type without tasks": (
        ("c", "-", "ghostless:parked_types:q names demo.sub, of which no task is parked", "repairable"),
    ),
    "a member without a task": (("c", "gone", "its record is gone; left of it: ghostless:due", "remains"),),
    "what it waits for does not know": (
        ("d", "t1", "it waits for dependency, which is SCHEDULED and will not tell it", "repairable"),
    ),
    "what it waits for is damaged": (
        ("a", "dependency", "CORRUPT ghostless:task:dependency field state: expected a state, got X", "kept"),
    ),
    "what does not know of it is damaged": (
        ("c", "t1", "CORRUPT ghostless:task:dependency field state: expected a state, got X", "kept"),
        ("a", "dependency", "CORRUPT ghostless:task:dependency field state: expected a state, got X", "kept"),
    ),
    "what it waits for ended untold": (
        ("d", "t1", "it waits for dependency, which is CANCELLED and will not tell it", "repairable"),
    ),
    "unmet of another type": (("c", "t1", "CORRUPT ghostless:unmet:t1: expected set, got string", "kept"),),
    "unmet of no use": (("c", "t1", "it is PENDING and yet waits for tasks", "repairable"),),
    "unmet is gone": (("d", "t1", "what it waits for is gone from ghostless:unmet:t1", "repairable"),),
    "unmet and depends_on are gone": (
        ("c", "t1", "CORRUPT ghostless:depends_on:t1: expected a list of 1 ids, got nothing", "kept"),
        ("a", "t1", "its depends_on is gone from ghostless:depends_on:t1", "kept"),
    ),
    "waits for a stranger": (("c", "t1", "it waits for stranger, on which it does not depend", "repairable"),),
    "waits for nothing": (("d", "t1", "it waits for nothing", "repairable"),),
    "a field that stayed": (("b", "t1", "it is PAUSED and its worker_id is w", "repairable"),),
    "its timeout_at is gone": (("b", "t1", "its timeout_at is missing", "repairable"),),
    "held by nobody": (("b", "t1", "nothing says which worker holds it", "kept"),),
    "a lease of another type": (("c", "t1", "CORRUPT ghostless:heartbeat:t1: expected string, got list", "kept"),),
    "a lease that stayed": (("c", "t1", "it is PAUSED and has a lease", "repairable"),),
    "a lease of another": (("c", "t1", "its lease is that of w9 1, not of w1 1", "repairable"),),
    "a lease without end": (("g", "t1", "its lease has no end", "repairable"),),
    "waits for nothing, and cannot go on": (
        ("c", "t1", "CORRUPT rq:queues: expected set, got string", "kept"),
        ("c", "-", "rq:queues is a string, not a set", "kept"),
    ),
    "a value of another type": (("c", "t1", "CORRUPT ghostless:error:t1: expected string, got hash", "kept"),),
    "a value that would expire": (("g", "t1", "ghostless:params:t1 would expire", "repairable"),),
    "a value that is gone": (("a", "t1", "its params is gone from ghostless:params:t1", "kept"),),
    "a tombstone too early": (("c", "t1", "it lives and has a tombstone", "repairable"),),
    "a damaged record": (
        ("a", "t1", "CORRUPT ghostless:task:t1 field failures: expected a whole number, got many", "kept"),
    ),
    "no ticket": (("b", "t1", "it is PENDING and has no ticket in rq:queue:q", "repairable"),),
    "no ticket since a moment ago": (("b", "t1", "it is PENDING and has no ticket in rq:queue:q", "later"),),
    "no ticket, and none can be made": (
        ("c", "t1", "CORRUPT rq:queues: expected set, got string", "kept"),
        ("c", "-", "rq:queues is a string, not a set", "kept"),
    ),
    "two tickets": (("b", "t1", "it is PENDING and has 2 tickets in rq:queue:q", "repairable"),),
    "an empty ticket": (("b", "t1", "it is PENDING and its ticket is empty", "repairable"),),
    "a ticket that stayed": (("b", "t1", "it is PAUSED and its ticket is still there", "repairable"),),
    "tickets of another type": (
        ("c", "t1", "CORRUPT rq:queue:q: expected list, got string", "kept"),
        ("c", "-", "rq:queue:q: WRONGTYPE Operation against a key holding the wrong kind of value", "kept"),
    ),
    "a ticket of nothing": (("c", "nothing", "its record is gone; left of it: rq:queue:q", "remains"),),
    "a history of another type": (
        ("c", "-", "ghostless:history is a string, not a stream", "kept"),
        ("c", "-", "ghostless:history: expected stream, got string", "kept"),
        ("c", "-", "rq:queue:q: ghostless:history: expected stream, got string", "kept"),
    ),
    "an entry that is gone": (("e", "t1", "entry 1 (#) is not in the history", "kept"),),
    "an illegal step": (("e", "t1", "entry 2 (START to SUCCESS) is no legal step from PENDING", "kept"),),
    "an entry of another task": (
        ("e", "t1", "entry 2 is of another task", "kept"),
        (
            "a",
            "another",
            "its record is gone; its last move: START from PENDING to PROCESSING by worker:w1 (policy), entry #",
            "remains",
        ),
    ),
    "an entry of another attempt": (("e", "t1", "entry 2 is of attempt 7, not 1", "kept"),),
    "an unknown reason": (("e", "t1", "entry 1 has an unknown reason", "kept"),),
    "nobody did it": (("e", "t1", "entry 1 names no actor", "kept"),),
    "an entry of another queue": (("e", "t1", "entry 1 is of another type, queue or owner", "kept"),),
    "entries in another order": (("e", "t1", "entry 2 is not newer than the one before", "kept"),),
    "a state without a step": (("e", "t1", "it is PAUSED, and its history ends in CANCELLED", "kept"),),
    "another attempt": (("e", "t1", "it is at attempt 2, and its history has 0 starts", "kept"),),
    "an entry that no task names": (
        ("c", "t1", "the history has an entry of it, #, that it does not name", "remains"),
    ),
    "a record that is gone": (
        (
            "a",
            "t1",
            "its record is gone; left of it: ghostless:listed:q:demo.add, ghostless:owned:ann:[a-z]*, "
            "ghostless:params:t1, ghostless:pending:q, ghostless:state:PENDING, rq:job:t1; its last move: SUBMIT "
            "from nothing to PENDING by client (user), entry #",
            "remains",
        ),
    ),
    "a wrong count": (
        ("h", "-", "2 tasks were submitted, 1 are here, 0 were purged and 0 written off as lost", "repairable"),
    ),
    "a note in quarantine": (("c", "t1", "it was taken out of ghostless:due: no task", "remains"),),
    "an unknown key": (("g", "-", "ghostless:cache is no key of this version", "kept"),),
    "a key that would expire": (("g", "-", "ghostless:ledger would expire", "repairable"),),
    "a key without end": (("g", "-", "ghostless:tombstone:gone has no end", "repairable"),),
    "a key of another type": (("c", "-", "ghostless:types is a string, not a hash", "kept"),),
    "no number": (("c", "-", "ghostless:ledger: stale_writes is 'many', and no whole number", "kept"),),
    "a bulk action that would expire": (("g", "-", "ghostless:bulk:# would expire", "repairable"),),
    "a bulk action that is over and without end": (("g", "-", "ghostless:bulk:# has no end", "repairable"),),
    "a bulk action without a turn": (
        ("d", "-", "the bulk action # is not over, and nothing will work it off", "repairable"),
    ),
    "a bulk action without a record": (
        ("c", "-", "ghostless:bulks_running names #, a bulk action whose record is gone", "remains"),
    ),
    "a delivery without a turn": (("d", "called", "its delivery # waits, and nothing will make it", "repairable"),),
    "a delivery without a record": (("d", "called", "its delivery # waits, and its record is gone", "repairable"),),
    "a delivery of what was purged": (("d", "none", "its delivery 1-1 waits, and its record is gone", "repairable"),),
}
