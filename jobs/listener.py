"""The listener: what is to happen after the fact, by handlers that are registered with `@on`.

Each handler reads the history in a consumer group of its own, called `GROUP:HANDLER`. So one that hangs or fails holds
nobody else up, is tried and parked by itself, and shows by itself how far behind it is.
"""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping

from .connection import connect
from .consumer import Consumer
from .deliverer import Deliverer
from .groups import BEGINNING, Groups
from .handler_process import HandlerProcess
from .lane import Lane
from .scripts import translated
from .settings import Settings
from .subscriptions import Subscription

log = logging.getLogger("ghostless.listener")


def run_listener(settings: Settings, subscriptions: Mapping[str, Subscription], stop: threading.Event) -> None:
    """Deliver to the subscriptions, by the names of their groups, and callbacks, until `stop` is set.

    Groups that do not exist yet begin with what happens from now on. Raises RedisUnavailable, RedisFull for that.
    """
    groups = Groups(connect(settings), settings)
    for group in subscriptions:
        log.info("%s %s", group, "is new" if groups.create(group) else "goes on")
    name, starts = consumer_name(), _starts(groups)

    def lane(group: str, subscription: Subscription) -> Lane:
        consumer = Consumer(groups, group, name, settings.lease)
        process = HandlerProcess(subscription, settings)
        return Lane(consumer, process, settings, stop, starts.get(group, BEGINNING))

    duties = [lane(*each).run for each in subscriptions.items()]
    if settings.callback_secret:
        duties.append(Deliverer.of(settings, stop).run)
    threads = [threading.Thread(target=duty) for duty in duties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _starts(groups: Groups) -> dict[str, str]:
    """Return by group the id of the entry after which it reads on."""
    with translated():
        found = groups.redis.xinfo_groups(groups.keys.history)
    return {group["name"]: group["last-delivered-id"] for group in found}


def consumer_name() -> str:
    """Return a name that no other listener has or had, and that tells people which process it is."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
