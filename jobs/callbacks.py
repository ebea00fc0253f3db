"""The listener's own handler for callbacks: it plans that the end of a task is told, and what is told of it.

It sends nothing: a receiver that hangs would hold up the entries behind it. The deliverer does that.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from ..statemachine import FINAL
from .client import Client
from .delivery import Delivery
from .errors import CorruptRecord, TaskNotFound
from .keys import CALLBACKS
from .model import Entry, Task
from .reads import Reads
from .settings import Settings
from .subscriptions import Subscription, Subscriptions

GROUP, _, _NAME = CALLBACKS.partition(":")

VALUE_LIMIT: Final = 64 * 1024
"""Bytes of JSON up to which a result, and metadata, are told; of larger ones only that there are."""

_built_in = Subscriptions()

_AS_THEY_ARE = ("submitted_at", "started_at", "failures", "timeouts", "losses")
"""What is told of a task that is still there, beside what its history entry knows."""


def wanted(settings: Settings) -> Iterable[Subscription]:
    """Return the subscription to ended tasks with a callback; none where no secret is set to sign with."""
    return [replace(each, needed="callback") for each in _built_in] if settings.callback_secret else ()


@_built_in.on(*sorted(FINAL), name=_NAME, retries=100)
def plan(entry: Entry, client: Client) -> None:
    """Note that the end of a task is to be told to its callback."""
    client.deliveries.plan(entry)


def message(delivery: Delivery, reads: Reads) -> Mapping[str, Any]:
    """Return what is told: the task as it is, or what its history entry says when it was purged, or goes on."""
    entry, task = delivery.entry, None
    with suppress(TaskNotFound, CorruptRecord):
        task = reads.task(entry.task)
    at = datetime.fromtimestamp(entry.at / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "type": delivery.type,
        "timestamp": at.replace("+00:00", "Z"),
        "data": _of_entry(entry) | (_of_task(task) if task and _is_at(task, entry) else {}),
    }


def _of_entry(entry: Entry) -> dict[str, Any]:
    told = entry.to_dict()
    names = ("type", "queue", "owner", "attempt", "actor", "reason", "message")
    return {"id": entry.task, "state": entry.to_state, "finished_at": entry.at, **{name: told[name] for name in names}}


def _is_at(task: Task, entry: Entry) -> bool:
    """Tell whether a task still rests where the entry says that it ended: another life has further attempts."""
    return (task.state, task.attempt) == (entry.to_state, entry.attempt)


def _of_task(task: Task) -> dict[str, Any]:
    values = {"metadata": task.metadata, "result": task.result}
    told = {name: value for name, value in values.items() if len(json.dumps(value)) <= VALUE_LIMIT}
    return {name: getattr(task, name) for name in _AS_THEY_ARE} | told | {"omitted": sorted(values.keys() - told)}
