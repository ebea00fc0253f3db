"""The alerts that come with the listener: lost workers, and more timeouts than usual.

How many are sent in a window does not depend on the number of listeners: what counts is written down in Redis.
"""

import json
import urllib.request
from collections import deque
from collections.abc import Iterable
from http.client import HTTPException
from importlib import import_module
from typing import Any, Final
from urllib.error import HTTPError

from redis import Redis

from ..statemachine import Event, Reason
from .client import Client
from .errors import GhostlessError
from .keys import Keys
from .model import Entry
from .scripts import translated
from .settings import Settings
from .spans import duration
from .subscriptions import Subscription, Subscriptions

GROUP: Final = "alerts"
"""What the groups of the alerts begin with, whatever the listener's own group is called."""

LOST_WINDOW: Final = 60_000
"""Milliseconds in which at most LOST_TOLD lost workers are told of."""

LOST_TOLD: Final = 5
"""Alerts about lost workers in a window: a host with many workers is to be no flood."""

SENDING: Final = 10.0
"""Seconds that a webhook may be silent."""

COUNTED: Final = 10_000
"""Entries of a window that are counted at most."""

_built_in = Subscriptions()

_sent: deque[tuple[str, str]] = deque(maxlen=1000)
"""What this process has sent, by alert and place, so that a further try sends only what failed."""


class AlertNotSent(GhostlessError):
    """A place took no alert; its address is not told, since whoever knows it can use it."""


def wanted(settings: Settings) -> Iterable[Subscription]:
    """Return the subscriptions of the alerts; none when no place is set to send them to."""
    return _built_in if settings.alerts or settings.alert_webhook else ()


@_built_in.on(Event.TIMEOUT, name="worker-lost", timeout=60)
def worker_lost(entry: Entry, client: Client) -> None:
    """Tell that a worker was lost; the last alert of a window says that further ones are not told of."""
    if entry.reason not in (Reason.HEARTBEAT_LOST, Reason.WORKER_LOST):
        return
    number = _counted(client.store.redis, client.store.keys, "worker-lost", entry, LOST_WINDOW)
    if number <= LOST_TOLD:
        more = f"; further ones within {duration(LOST_WINDOW)} are not told of" if number == LOST_TOLD else ""
        _send(client.settings, entry, "A worker was lost", f"{entry.message} ({entry.reason}){more}")


@_built_in.on(Event.TIMEOUT, name="timeouts", timeout=60)
def timeouts(entry: Entry, client: Client) -> None:
    """Tell that more attempts timed out, or were lost, within the window than usual, once a window."""
    settings, window = client.settings, round(1000 * client.settings.alert_window)
    number = _counted(client.store.redis, client.store.keys, "timeouts", entry, window)
    if number > settings.alert_timeouts and _is_first(client, "timeouts", entry, window):
        text = f"more than {settings.alert_timeouts} timeouts within {duration(window)}"
        _send(settings, entry, "Too many timeouts", f"{text}, {number} by now")


# Counting


def _counted(redis: Redis, keys: Keys, rule: str, entry: Entry, window: int) -> int:
    """Count an entry, once however often it is handled, and return its number in the window, from 1."""
    key = keys.alert_window(rule)
    with translated(), redis.pipeline() as pipeline:
        pipeline.zremrangebyscore(key, "-inf", entry.at - window)
        pipeline.zadd(key, {entry.id: entry.at})
        pipeline.zremrangebyrank(key, 0, -COUNTED - 1)
        pipeline.pexpire(key, window)
        pipeline.zrank(key, entry.id)
        return (pipeline.execute()[-1] or 0) + 1


def _is_first(client: Client, rule: str, entry: Entry, window: int) -> bool:
    """Tell whether the alert of this window is this entry's to send, also when it is tried again."""
    redis, key = client.store.redis, client.store.keys.alert(rule)
    with translated():
        return bool(redis.set(key, entry.id, nx=True, px=window)) or redis.get(key) == entry.id


# Sending


def _send(settings: Settings, entry: Entry, title: str, text: str) -> None:
    """Send an alert to every place that did not get it yet. Raises AlertNotSent when one of them did not take it."""
    about = f"{text}: task {entry.task} of type {entry.type}, attempt {entry.attempt}"
    failed: list[str] = []
    for place in filter(None, [settings.alert_webhook, *settings.alerts]):
        if (entry.id + title, place) in _sent:
            continue
        try:
            _post(place, entry, title, about) if place == settings.alert_webhook else _notify(place, title, about)
            _sent.append((entry.id + title, place))
        except AlertNotSent as error:
            failed.append(str(error))
    if failed:
        raise AlertNotSent("; ".join(failed))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        """Follow none: an alert goes where it was told to go, and nowhere else."""


_opener = urllib.request.build_opener(_NoRedirect)


def _post(address: str, entry: Entry, title: str, text: str) -> None:
    """POST the alert as JSON; `text` alone is what Slack and Mattermost show."""
    body = {"text": f"{title}: {text}", "title": title, "entry": entry.to_dict()}
    headers = {"Content-Type": "application/json", "User-Agent": "ghostless"}
    try:
        request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
        _opener.open(request, timeout=SENDING).close()
    except HTTPError as error:
        raise AlertNotSent(f"the webhook answered {error.code}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise AlertNotSent(f"the webhook was not reached: {type(error).__name__}") from None


def _notify(address: str, title: str, text: str) -> None:
    try:
        apprise = import_module("apprise")
    except ModuleNotFoundError:
        raise AlertNotSent("GHOSTLESS_ALERTS needs Apprise: pip install 'ghostless[alerts]'") from None
    sender = apprise.Apprise()
    kind = address.partition(":")[0]
    try:
        is_sent = sender.add(address) and sender.notify(title=title, body=text)
    except Exception as error:  # of one of its hundred services
        raise AlertNotSent(f"Apprise could not send to {kind}: {type(error).__name__}") from None
    if not is_sent:
        raise AlertNotSent(f"Apprise could not send to {kind}")
