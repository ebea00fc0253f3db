"""Records that live until what they tell of is over, and then for a while: bulk actions, and deliveries of callbacks.

One that is not over has no time to live, and a place from which it is worked off. What is in motion is never told of:
scripts change a record together with its place and its life, so what is seen twice alike was so in between.
"""

from collections.abc import Iterable, Iterator

from .batches import elements, members, raw
from .bulk_actions import KEPT_FOR, BulkActions
from .deliveries import LIFE, Deliveries
from .inventory import Place
from .scripts import translated
from .store import Store
from .upkeep import Finding


class Endings:
    """Looks at these records, and with an `actor` puts them right. Raises RedisUnavailable, CorruptRecord."""

    def __init__(self, store: Store, actor: str = "") -> None:
        self._redis, self._keys, self._repairs = store.redis, store.keys, bool(actor)
        self._deliveries = Deliveries(store.redis, store.keys, store.scripts)
        self._bulk_actions = BulkActions(store)

    def audit(self, name: str, place: Place) -> Iterator[Finding]:
        """Tell what is wrong with the record of this name."""
        is_over = self._is_over(place)
        with translated():
            left = self._redis.pttl(raw(name))
        if left != -2 and is_over == (left == -1) and is_over == self._is_over(place):
            yield self._with_another_life(name, place, is_over)
        if place.family == "bulk":
            yield from self._stranded_bulk_action(place.id)
        else:
            yield from self._stranded_deliveries(place.id)

    def _is_over(self, place: Place) -> bool:
        return self._bulk_actions.is_over(place.id) if place.family == "bulk" else not self._deliveries.waits(place.id)

    def _with_another_life(self, name: str, place: Place, is_over: bool) -> Finding:
        if self._repairs:
            with translated():
                if is_over:
                    self._redis.pexpire(raw(name), KEPT_FOR if place.family == "bulk" else LIFE)
                else:
                    self._redis.persist(raw(name))
        return self._finding("-", "g", f"{name} {'has no end' if is_over else 'would expire'}")

    def _finding(self, task_id: str, rule: str, what: str) -> Finding:
        return Finding(task_id, rule, what, "repaired" if self._repairs else "repairable")

    def _stranded_bulk_action(self, bulk_id: str) -> Iterator[Finding]:
        if self._bulk_actions.is_stranded(bulk_id, repairs=self._repairs):
            yield self._finding("-", "d", f"the bulk action {bulk_id} is not over, and nothing will work it off")

    def _stranded_deliveries(self, task_id: str) -> Iterator[Finding]:
        for delivery_id in self._deliveries.stranded(task_id, repairs=self._repairs):
            yield self._finding(task_id, "d", f"its delivery {delivery_id} waits, and nothing will make it")

    # Places without a record

    def unrecorded(self, hosts: Iterable[str]) -> Iterator[Finding]:
        """Tell which bulk actions, and which deliveries to these hosts, have a turn and no record."""
        running = self._keys.bulks_running
        for bulk_id in elements(self._redis, running):
            if self._bulk_actions.is_lost(bulk_id, repairs=self._repairs):
                yield self._removed("-", f"{running} names {bulk_id}, a bulk action whose record is gone")
        for host in hosts:
            for member in members(self._redis, self._keys.due_deliveries(host)):
                yield from self._unrecorded(host, member)

    def _unrecorded(self, host: str, member: str) -> Iterator[Finding]:
        task_id, _, delivery_id = member.partition(" ")
        if not self._deliveries.is_lost(host, member):
            return
        what = f"its delivery {delivery_id} waits, and its record is gone"
        if not self._repairs or self._deliveries.rebuild(host, member):
            yield self._finding(task_id, "d", what)
        else:
            yield self._removed(task_id, what)

    def _removed(self, task_id: str, what: str) -> Finding:
        return Finding(task_id, "c", what, "removed" if self._repairs else "remains")
