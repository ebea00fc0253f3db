"""Whether each key that is no task's is of the type that it must be, has the life and holds the numbers it must have.

What belongs to a task is looked at with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redis.client import Pipeline

from ..lua.loader import VALUES
from .batches import ask_each, raw
from .inventory import FIXED, NUMBERS, REBUILT, REMADE, Place, place_of
from .keys import SET_ASIDE_LIFE
from .names import is_whole
from .rq_keys import QUEUES
from .scripts import translated
from .store import Store
from .upkeep import Finding

_OF_TASKS = ("task", *VALUES, "heartbeat")


class Shapes:
    """Looks at keys, and with an `actor` puts right what can be. Raises RedisUnavailable."""

    def __init__(self, store: Store, actor: str = "") -> None:
        self._redis, self._keys, self._repairs = store.redis, store.keys, bool(actor)
        self._life = round(store.settings.tombstone)

    def of_the_whole(self) -> Iterator[Finding]:
        """Tell what is wrong with the keys of which there is one each, and with rq's names of queues."""
        names = [self._keys.prefix + family for family in sorted(FIXED)]
        places = {name: place_of(self._keys, name) for name in names}
        yield from self.audit(places | {QUEUES: Place("rq_queues", "", "kept", "set")})

    def audit(self, places: Mapping[str, Place]) -> Iterator[Finding]:
        """Tell what is wrong with these keys, each with what it is."""
        names = [name for name, place in places.items() if place.family not in _OF_TASKS]
        lives, types = ask_each(self._redis, "pttl", names), ask_each(self._redis, "type", names)
        for name, left, found in zip(names, lives, types, strict=True):
            place = places[name]
            if place.life == "unknown":
                yield Finding("-", "g", f"{name} is no key of this version", "kept")
            elif found not in (place.type, "none") and place.type != "any":
                yield self._damaged(name, place, f"{name} is a {found}, not a {place.type}")
            elif left != -2:
                yield from self._with_another_life(name, place, left)
                yield from self._without_numbers(name, place)

    def _damaged(self, name: str, place: Place, what: str) -> Finding:
        if place.family not in REMADE | REBUILT:
            return Finding("-", "c", what, "kept")
        if self._repairs and place.family in REMADE:
            with translated():
                self._redis.unlink(raw(name))
        elif self._repairs:
            self._set_aside(name, place.type)
        return Finding("-", "c", what, self._outcome)

    def _set_aside(self, name: str, expected: str) -> None:
        """Make room for an index, unless a watchdog did so meanwhile: the records tell what must stand in it."""

        def rename(pipeline: Pipeline) -> None:
            found = pipeline.type(raw(name))
            pipeline.multi()
            if found not in (expected, "none"):
                pipeline.rename(raw(name), raw(self._keys.set_aside(name)))
                pipeline.pexpire(raw(self._keys.set_aside(name)), SET_ASIDE_LIFE)

        with translated():
            self._redis.transaction(rename, raw(name))

    @property
    def _outcome(self) -> str:
        return "repaired" if self._repairs else "repairable"

    def _with_another_life(self, name: str, place: Place, left: int) -> Iterator[Finding]:
        is_kept = place.life == "kept"
        if place.life == "ending" or is_kept == (left == -1):  # of the former `endings.py` knows which it must have
            return
        if self._repairs:
            with translated():
                if is_kept:
                    self._redis.persist(raw(name))
                elif place.family in REMADE:
                    self._redis.unlink(raw(name))
                else:
                    self._redis.expire(raw(name), self._life)
        yield Finding("-", "g", f"{name} {'would expire' if is_kept else 'has no end'}", self._outcome)

    def _without_numbers(self, name: str, place: Place) -> Iterator[Finding]:
        for what, text in self._numbers(name, place):
            if text is not None and not is_whole(str(text)):
                yield self._damaged(name, place, f"{what} is {str(text)[:20]!r}, and no whole number")

    def _numbers(self, name: str, place: Place) -> Sequence[tuple[str, Any]]:
        """Return what must be whole numbers in a key, each with what it is called."""
        with translated():
            if place.family == "blocked_cursor":
                return [(name, self._redis.get(raw(name)))]
            fields = NUMBERS.get(place.family, ())
            found = self._redis.hmget(raw(name), fields) if fields else []
        return [(f"{name}: {field}", text) for field, text in zip(fields, found, strict=True)]
