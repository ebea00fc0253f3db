"""The whole in numbers, for Prometheus."""

from collections.abc import Iterator, Mapping

from flask import Blueprint, Response
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..jobs.reads import Reads
from .access import Scope
from .desk import desk
from .operations import Answer, operation

routes = Blueprint("metrics", __name__)

_COUNTED = {
    "submitted": ("ghostless_tasks_submitted", "Tasks that were accepted."),
    "purged": ("ghostless_tasks_purged", "Tasks that were removed when their retention was over."),
    "archived": ("ghostless_tasks_archived", "Tasks that were archived before they were removed."),
    "lost": ("ghostless_tasks_lost", "Tasks whose record was gone, written off by `ghostless doctor --repair`."),
    "stale_writes": ("ghostless_stale_writes", "Writes of attempts that no longer held their task; all were refused."),
}


@routes.get("/metrics")
@operation(Scope.READ, answers={200: Answer("text/plain", meaning="The numbers.")})
def metrics() -> ResponseReturnValue:
    """Return what there is to count, in the text format of Prometheus."""
    return Response(generate_latest(_Numbers(desk().client.reads)), content_type=CONTENT_TYPE_LATEST)


class _Numbers(Collector):
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    def collect(self) -> Iterator[Metric]:
        """Yield every family of numbers, read now."""
        yield from self._ledger()
        yield from self._queues()
        yield from self._watchdog()

    def _ledger(self) -> Iterator[Metric]:
        ledger = self._reads.ledger()
        for name, (metric, meaning) in _COUNTED.items():
            yield CounterMetricFamily(metric, meaning, value=ledger[name])
        states = {str(state): number for state, number in self._reads.counts().items()}
        yield _by("state", "ghostless_tasks", "Tasks in each state.", states)
        missing = "Tasks of which nothing is known: submitted - here - purged - lost. Anything but 0 is a fault."
        yield GaugeMetricFamily("ghostless_tasks_missing", missing, value=ledger["missing"])

    def _queues(self) -> Iterator[Metric]:
        queues = sorted(self._reads.queues())
        waiting, now = self._reads.waiting(queues), self._reads.now()
        ages = {queue: (now - since) / 1000 for queue, since in self._reads.oldest_pending(waiting).items()}
        pending = {queue: found.pending for queue, found in waiting.items()}
        parked = {queue: sum(found.parked.values()) for queue, found in waiting.items()}
        yield _by("queue", "ghostless_queue_pending", "PENDING tasks, the parked ones included.", pending)
        yield _by("queue", "ghostless_queue_parked", "PENDING tasks that no worker serves.", parked)
        yield _by("queue", "ghostless_queue_oldest_pending_seconds", "How long the oldest PENDING task waits.", ages)

    def _watchdog(self) -> Iterator[Metric]:
        trace = self._reads.watchdog()
        if trace:  # else it is absent, as nobody swept for a while
            age = (self._reads.now() - int(trace["swept_at"])) / 1000
            yield GaugeMetricFamily("ghostless_last_sweep_age_seconds", "Time since a watchdog swept.", value=age)


def _by(label: str, name: str, meaning: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
