"""The beats of many attempts in one round trip, for workers that hold many tasks."""

from collections.abc import Sequence

from .errors import GhostlessError
from .messages import Answer, Held
from .remote import RemoteWorkers
from .store import Store


def heartbeat_many(
    store: Store, workers: RemoteWorkers, worker: str, attempts: Sequence[Held]
) -> list[Answer | Exception]:
    """Renew the leases of a worker's attempts; each has its answer (`moved`, `already`, `stale`, `missing`) or error.

    One script a task, so that Redis serves others between two of them, and a damaged record hurts no other. With them
    goes the note that the worker is at work. Raises RedisUnavailable when nothing is known of any.
    """
    lease = round(1000 * store.settings.lease)
    calls = [("heartbeat", [store.keys.task(held.task_id)], (held.attempt, held.token, lease, "")) for held in attempts]
    replies = store.scripts.call_many([*calls, *workers.notes_of_beat(worker)])
    for noted in replies[len(calls) :]:
        if isinstance(noted, GhostlessError):
            workers.could_not_note(worker, noted)
    return [
        reply if isinstance(reply, Exception) else Answer.read(reply, held.task_id)
        for held, reply in zip(attempts, replies, strict=False)
    ]
