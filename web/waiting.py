"""Long polls: an answer that is held until the task changes, without asking Redis again and again."""

import re
import time
from collections.abc import Callable

from flask import Response

from ..jobs.model import Task
from .desk import Desk
from .hub import HubClosed
from .listening import Listening
from .models import WAIT_LIMIT
from .rooms import Subscription
from .watch import Watch

POLL_AFTER = 2
"""Seconds after which a client that does not wait may ask again, for a task that is not final."""

_PREFERRED = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?=[,;]|$)", re.IGNORECASE)

Known = Callable[[Task], bool]


def applied_wait(asked: int | None, prefer: str) -> int | None:
    """Return for how many seconds to hold the answer, from the query or a Prefer header; None when not asked to."""
    preferred = _PREFERRED.search(prefer)
    if asked is None and preferred:
        asked = int(preferred[1])
    return None if asked is None else min(asked, WAIT_LIMIT)


def tell_wait(answer: Response, wait: int | None) -> None:
    """Say in an answer for how many seconds it was held at most, where that was asked for."""
    if wait is not None:
        answer.headers["Preference-Applied"] = f"wait={wait}"


def wait_for_change(desk: Desk, task_id: str, known: Known | None, seconds: int) -> Task:
    """Return the task once it differs from what is `known`, or at the end of the wait.

    Without `known` it is held until its state changes from the one that it is in now: what happened since the client
    last looked is no news then, so a client that looked before names its version. Final tasks are returned at once.
    Raises TaskNotFound, CorruptRecord, RedisUnavailable, HubFull, TooManyListeners.
    """
    if not seconds:
        return desk.client.get(task_id)
    deadline = time.monotonic() + seconds
    try:
        # Listen first, then look: what happens between the two is heard. A client that names no version waits for
        # another state, and progress does not wake it.
        with Listening(desk, Watch(frozenset({task_id}), live=known is not None)) as inbox:
            return _held(desk, task_id, inbox, known, deadline)
    except HubClosed:
        return desk.client.get(task_id)


def _held(desk: Desk, task_id: str, inbox: Subscription, known: Known | None, deadline: float) -> Task:
    task = desk.past.task(task_id)
    first = task.state
    while _must_wait(task, first, known):
        left = deadline - time.monotonic()
        if left <= 0 or desk.hub.take(inbox, left).closed:
            break
        task = desk.past.task(task_id)
    return task


def _must_wait(task: Task, first: str, known: Known | None) -> bool:
    if task.is_final:
        return False
    return task.state == first if known is None else known(task)
