"""Which keys there may be under the prefix: by the part of the name before the id, or whole."""

from dataclasses import dataclass
from typing import Final, Literal

from ..lua.loader import VALUE_TYPES, VALUES
from .keys import COUNTERS, INDICES, LISTED_SINCE, SINGLE_INDICES, Keys

KEPT: Final = frozenset(
    {
        *("history", *SINGLE_INDICES, "leftovers", "blocked_cursor"),
        *("types", "schedules", "queues", "limits", "ledger", "quarantine", "epoch", "tokens", "signing_key"),
        *("bulks", "bulks_running", "due_receivers", "listed_places"),
    }
)
KEPT_EACH: Final = frozenset(
    {"task", *VALUES, *INDICES, "parked_types", "wake", "leftover", "listener", "due_deliveries", "bulk_ids"}
)
PASSING: Final = frozenset({"watchdog", "patrol", "prune", "http_workers"})
PASSING_EACH: Final = frozenset(
    {
        *("heartbeat", "tombstone", "idempotency", "claim", "events", "parked_entries", "alert", "alert_window"),
        *("http_worker", "session_ended", "set_aside"),
    }
)
REMADE: Final = frozenset({"watchdog", "patrol", "prune", "claim", "blocked_cursor", "wake"})
"""Those of them that whoever writes them makes anew: a damaged one, or one without an end, is of no use."""

REBUILT: Final = frozenset({*SINGLE_INDICES, *INDICES, "parked_types", "listed_places"})
"""The indices of tasks, which are made anew from the records: what stands in the place of one is set aside."""

ENDING_EACH: Final = frozenset({"bulk", "deliveries"})
"""Records that are kept until what they tell of is over, and then for a while; `endings.py` knows which is which."""

FIXED: Final = KEPT | PASSING
"""The names that stand for one key each."""

_OF_TIMES = ("due_receivers", "due_deliveries", "http_workers", "alert_window")
_RECORDS = ("types", "schedules", "queues", "limits", "ledger", "quarantine", "tokens", "watchdog", "patrol", "prune")
_TYPES: Final = {
    "history": "stream",
    **dict.fromkeys((*SINGLE_INDICES, *INDICES, *_OF_TIMES), "zset"),
    **dict.fromkeys((*_RECORDS, "task", "leftover", "listener", *ENDING_EACH), "hash"),
    **dict.fromkeys(("leftovers", "bulks", "bulks_running", "bulk_ids", "wake", "events", "parked_entries"), "list"),
    **dict.fromkeys(("listed_places", "parked_types"), "set"),
    **VALUE_TYPES,
    "set_aside": "any",
}
"""What each family is in Redis; all others are strings."""

_WALK = ("at", "cursor", "member", "round", "began_at", "took")
NUMBERS: Final = {
    "ledger": COUNTERS,
    "limits": (LISTED_SINCE,),
    "watchdog": ("swept_at", "late_from", "judge_from"),
    **dict.fromkeys(("patrol", "prune"), _WALK),
}
"""Fields of these hashes that are whole numbers, when they are there."""

Life = Literal["kept", "passing", "ending", "unknown"]


@dataclass(frozen=True, slots=True)
class Place:
    """What a key is: its family, the id in its name if it has one, whether it must have a TTL, its type in Redis."""

    family: str
    id: str
    life: Life
    type: str


def place_of(keys: Keys, name: str) -> Place:
    """Tell what a key under the prefix is."""
    family, colon, name_id = name.removeprefix(keys.prefix).partition(":")
    return Place(family, name_id, _life(family, has_id=bool(colon)), _TYPES.get(family, "string"))


def _life(family: str, *, has_id: bool) -> Life:
    if family in (KEPT_EACH if has_id else KEPT):
        return "kept"
    if family in (PASSING_EACH if has_id else PASSING):
        return "passing"
    return "ending" if has_id and family in ENDING_EACH else "unknown"
