"""Which keys there may be under the prefix: by the part of the name before the id, or whole."""

from dataclasses import dataclass
from typing import Final, Literal

from ..lua.loader import VALUES
from .keys import INDICES, SINGLE_INDICES, Keys

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
REMADE: Final = frozenset({"watchdog", "patrol", "prune", "claim"})
"""Those of them that whoever writes them makes anew: one without an end is of no use, whatever it is."""

ENDING_EACH: Final = frozenset({"bulk", "deliveries"})
"""Records that are kept until what they tell of is over, and then for a while; `endings.py` knows which is which."""

Life = Literal["kept", "passing", "ending", "unknown"]


@dataclass(frozen=True, slots=True)
class Place:
    """What a key is: its family, the id in its name if it has one, and whether it must have a TTL."""

    family: str
    id: str
    life: Life


def place_of(keys: Keys, name: str) -> Place:
    """Tell what a key under the prefix is."""
    family, colon, name_id = name.removeprefix(keys.prefix).partition(":")
    if family in (KEPT_EACH if colon else KEPT):
        return Place(family, name_id, "kept")
    if family in (PASSING_EACH if colon else PASSING):
        return Place(family, name_id, "passing")
    if colon and family in ENDING_EACH:
        return Place(family, name_id, "ending")
    return Place(family, name_id, "unknown")
