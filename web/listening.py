"""Waiting for a request: within what the process, the caller's token and its address may hold."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from flask import request

from .access import caller
from .desk import Desk
from .rooms import Subscription
from .watch import Watch


@contextmanager
def place(desk: Desk) -> Generator[None]:
    """Hold a place among those who wait while the block runs, which may outlive the request.

    Raises TooManyListeners, HubFull.
    """
    token = caller().credential.token
    with ExitStack() as held:
        held.enter_context(desk.addresses.taken(request.remote_addr or ""))
        if token:
            held.enter_context(desk.tokens.taken(token.id))
        held.enter_context(desk.hub.place())
        yield


@contextmanager
def listening(desk: Desk, watch: Watch) -> Generator[Subscription]:
    """Hold a place and listen while the block runs. Raises TooManyListeners, HubFull, HubClosed, RedisUnavailable."""
    with place(desk), desk.hub.subscribed(watch) as inbox:
        yield inbox
