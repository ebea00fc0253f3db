"""The beats of many attempts in one round trip, for workers that hold many tasks."""

from collections.abc import Sequence

from .messages import Answer, Held
from .store import Store


def heartbeat_many(store: Store, attempts: Sequence[Held]) -> list[Answer | Exception]:
    """Renew the leases of these attempts; each has its own answer (`moved`, `already`, `stale`, `missing`) or error.

    One script a task, so that Redis serves others between two of them, and a damaged record hurts no other.
    Raises RedisUnavailable when nothing is known of any.
    """
    lease = round(1000 * store.settings.lease)
    calls = (("heartbeat", [store.keys.task(held.task_id)], (held.attempt, held.token, lease, "")) for held in attempts)
    replies = store.scripts.call_many(calls)
    return [
        reply if isinstance(reply, Exception) else Answer.read(reply, held.task_id)
        for held, reply in zip(attempts, replies, strict=True)
    ]
