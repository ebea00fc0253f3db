"""Which verbs of the product the machine uses: scripts, routes and methods that write; and why it leaves others out."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import isfunction
from typing import Any

import pytest
from flask import Flask, Response, request
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.client import Client
from ghostless.jobs.consumer import Consumer
from ghostless.jobs.deliveries import Deliveries
from ghostless.jobs.groups import Groups
from ghostless.jobs.schedules import Schedules
from ghostless.jobs.scripts import Call, Scripts
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Upkeep
from ghostless.lua.loader import VERBS

CLASSES = (Client, Store, BulkActions, Schedules, Groups, Consumer, Deliveries, Upkeep)

READING = {
    "Client.check", "Client.types", "Client.queues", "Client.queue_overview", "Client.workers", "Client.worker_events",
    "Client.get", "Client.history", "Client.look_around", "Client.explain", "Client.deliveries_of", "Client.log",
    "Client.counts", "Client.list", "Store.are_published", "BulkActions.is_over", "BulkActions.get",
    "BulkActions.newest", "BulkActions.count", "Schedules.all", "Schedules.get", "Groups.all", "Groups.parked",
    "Consumer.wait", "Deliveries.is_lost", "Deliveries.of_task", "Deliveries.overview", "Deliveries.waits",
}  # fmt: skip
"""These change nothing."""

LEFT_OUT = {
    "POST /api/stream-tokens": "signs a text; nothing is stored",
    "POST /api/session": "of a person's browser; tests/integration/test_sessions.py",
    "DELETE /api/session": "of a person's browser",
    "Store.wait_for_hint": "waits, and may take a hint away, which nobody relies on",
    "BulkActions.work_off": "its script is called for pages of one task or two",
    "Upkeep.search": "for queues of more than 1000 tickets; tests/integration/test_doctor.py",
    "Deliveries.rebuild": "for records that are gone; tests/scripts/test_deliveries.py",
}
"""What writes, and why the machine does not do it."""

_METHODS = ("POST", "PUT", "PATCH", "DELETE")


class Uses:
    """Counts, while a test runs, what is used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: set[str] = set(VERBS)
        self.used: set[str] = set()
        self._count_scripts(monkeypatch)
        for owner in CLASSES:
            for name, method in vars(owner).items():
                if isfunction(method) and not name.startswith("_"):
                    self._count(monkeypatch, owner, name, method)

    def _count_scripts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        call, call_many = Scripts.call, Scripts.call_many

        def counting(scripts: Scripts, verb: str, *arguments: Any) -> Any:
            self.used.add(verb)
            return call(scripts, verb, *arguments)

        def counting_many(scripts: Scripts, calls: Sequence[Call]) -> list[Any]:
            calls = list(calls)
            self.used |= {verb for verb, _, _ in calls}
            return call_many(scripts, calls)

        monkeypatch.setattr(Scripts, "call", counting)
        monkeypatch.setattr(Scripts, "call_many", counting_many)

    def _count(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, method: Callable[..., Any]) -> None:
        known = f"{owner.__name__}.{name}"

        @wraps(method)
        def counting(*arguments: Any, **named: Any) -> Any:
            self.used.add(known)
            return method(*arguments, **named)

        self.known.add(known)
        monkeypatch.setattr(owner, name, counting)

    def watch(self, app: Flask) -> None:
        """Count the routes of an application whose requests were not refused."""
        for route in app.url_map.iter_rules():
            self.known |= {f"{method} {route.rule}" for method in _METHODS if method in (route.methods or ())}

        @app.after_request
        def note(answer: Response) -> Response:
            if answer.status_code < 300:
                self.used.add(f"{request.method} {request.url_rule}")
            return answer

    def missing(self) -> set[str]:
        """Return what writes, and was not used, and is not left out for a reason."""
        return self.known - self.used - READING - LEFT_OUT.keys()

    def idle_reasons(self) -> set[str]:
        """Return what is excused although it is used, or not there any more."""
        return (READING | LEFT_OUT.keys()) - self.known | LEFT_OUT.keys() & self.used
