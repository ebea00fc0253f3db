"""The whole in numbers, for Prometheus: what Redis holds, and what the process that answers does."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from flask import Blueprint, Flask, Response, current_app
from flask.typing import ResponseReturnValue
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..jobs.errors import CorruptRecord
from .access import Scope
from .desk import Desk, desk
from .operations import Reply, operation

log = logging.getLogger("ghostless.web")

routes = Blueprint("metrics", __name__)

_COUNTED = {
    "submitted": ("ghostless_tasks_submitted", "Tasks that were accepted."),
    "purged": ("ghostless_tasks_purged", "Tasks that were removed when their retention was over."),
    "archived": ("ghostless_tasks_archived", "Tasks that were archived before they were removed."),
    "lost": ("ghostless_tasks_lost", "Tasks whose record was gone, written off by `ghostless doctor --repair`."),
    "stale_writes": ("ghostless_stale_writes", "Writes of attempts that no longer held their task; all were refused."),
}


@routes.get("/metrics")
@operation(Scope.READ, whole=True, answers={200: Reply("text/plain", meaning="The numbers.")})
def metrics() -> ResponseReturnValue:
    """Return what there is to count, in the text format of Prometheus."""
    traffic = cast(Traffic, current_app.extensions["ghostless.traffic"])
    return Response(generate_latest(_Numbers(desk(), traffic)), content_type=CONTENT_TYPE_LATEST)


class Traffic:
    """The requests that this process answered, by status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: Counter[str] = Counter()

    @classmethod
    def install(cls, app: Flask) -> None:
        """Count what an application answers."""
        app.extensions["ghostless.traffic"] = traffic = cls()
        app.after_request(traffic.count)

    def count(self, response: Response) -> Response:
        """Count one answer; a stream counts when it begins."""
        with self._lock:
            self._answered[str(response.status_code)] += 1
        return response

    def metric(self) -> Metric:
        """Return the numbers up to now."""
        family = CounterMetricFamily(
            "ghostless_http_requests", "Requests that this process answered.", labels=["status"]
        )
        with self._lock:
            for status, number in sorted(self._answered.items()):
                family.add_metric([status], number)
        return family


class _Numbers(Collector):
    def __init__(self, here: Desk, traffic: Traffic) -> None:
        self._client, self._hub, self._traffic = here.client, here.hub, traffic
        self._reads = here.client.reads

    def collect(self) -> Iterator[Metric]:
        """Yield every family of numbers, read now."""
        for read in (self._ledger, self._states, self._queues, self._watchdog, self._workers, self._listeners):
            yield from _spared(read)
        yield from _spared(self._deliveries)
        yield from self._process()

    def _ledger(self) -> Iterator[Metric]:
        ledger = self._reads.ledger()
        for name, (metric, meaning) in _COUNTED.items():
            yield CounterMetricFamily(metric, meaning, value=ledger[name])
        missing = "Tasks of which nothing is known: submitted - here - purged - lost. Anything but 0 is a fault."
        yield GaugeMetricFamily("ghostless_tasks_missing", missing, value=ledger["missing"])

    def _states(self) -> Iterator[Metric]:
        states = {str(state): number for state, number in self._reads.counts().items()}
        yield _by("state", "ghostless_tasks", "Tasks in each state.", states)

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
        if trace and "audit_round" in trace:
            took = int(trace["audit_round"]) / 1000
            meaning = "How long the watchdogs' last round of the audit took."
            yield GaugeMetricFamily("ghostless_audit_round_seconds", meaning, value=took)

    def _workers(self) -> Iterator[Metric]:
        states = Counter(worker.state for worker in self._client.workers())
        yield _by("state", "ghostless_workers", "Registered workers, ours and rq's, by what they do.", states)

    def _listeners(self) -> Iterator[Metric]:
        groups = {group.name: group for group in self._client.listeners.all()}
        behind = {name: group.behind / 1000 for name, group in groups.items()}
        parked = {name: group.parked for name, group in groups.items()}
        missed = {name: group.missed for name, group in groups.items()}
        yield _by("group", "ghostless_listener_behind_seconds", "Age of the oldest entry not looked at yet.", behind)
        yield _by("group", "ghostless_listener_parked", "Entries whose handler failed for good.", parked)
        yield _by("group", "ghostless_listener_missed", "Entries purged before they were handed out.", missed)

    def _process(self) -> Iterator[Metric]:
        yield self._traffic.metric()
        open_now = "Streams, long polls and waiting workers in this process."
        yield GaugeMetricFamily("ghostless_http_listeners", open_now, value=self._hub.places_held)
        if (age := self._hub.age) is not None:
            came_round = "Time since this process last came round to ask Redis what happened; over 90 it is dead."
            yield GaugeMetricFamily("ghostless_hub_age_seconds", came_round, value=age)

    def _deliveries(self) -> Iterator[Metric]:
        found = self._client.deliveries.overview()
        waiting, late = "Hosts for which callbacks wait.", "Those of them to which nobody sends although it is time."
        yield GaugeMetricFamily("ghostless_callback_hosts_waiting", waiting, value=found.hosts)
        yield GaugeMetricFamily("ghostless_callback_hosts_late", late, value=found.late)


def _spared(read: Callable[[], Iterable[Metric]]) -> list[Metric]:
    """Return some families; none of those whose numbers cannot be read, so that the others are told."""
    try:
        return list(read())
    except CorruptRecord as error:
        log.error("%s: %s", read.__name__, error)
        return []


def _by(label: str, name: str, meaning: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
