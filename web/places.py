"""Places in the history as clients hold them: plain, or veiled where they would tell that others' tasks moved."""

from collections.abc import Callable

from .cursors import ORIGIN, Cursor
from .veil import unveiled, veiled


class Places:
    """Of one who may know where the whole history stands."""

    def shown(self, place: Cursor) -> str:
        """Return a place as the client may see it."""
        return str(place)

    def read(self, text: str) -> Cursor | None:
        """Return the place that a client sent; None when it is none. Raises RedisUnavailable."""
        return Cursor.parse(text)


class VeiledPlaces(Places):
    """Of one who may know of some tasks only: where their moves stand in the history, and of no other place.

    A move's own place is plain, and so comparable. Else `read` would be an oracle: whether a place that was made up
    lies beyond the newest one, or is that of an entry, tells when others' tasks moved.
    """

    def __init__(self, key: str, is_own: Callable[[Cursor], bool]) -> None:
        self._key, self._is_own = key, is_own

    def shown(self, place: Cursor) -> str:
        """Return another text each time, so that nobody can tell whether the place is another one."""
        return veiled(str(place), self._key)

    def read(self, text: str) -> Cursor | None:
        """Return the place that was veiled, or that of one of his own moves."""
        place = Cursor.parse(text)
        if place is None:
            return Cursor.parse(unveiled(text, self._key))
        return place if place.at == ORIGIN or self._is_own(place) else None
