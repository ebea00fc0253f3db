"""Listening for a request: within what the process, the caller's token and its address may hold."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from flask import request

from .access import caller
from .desk import Desk
from .watch import Subscription, Watch


@contextmanager
def listening(desk: Desk, watch: Watch) -> Generator[Subscription]:
    """Listen while the block runs, which may outlive the request.

    Raises TooManyListeners, HubFull, HubClosed, RedisUnavailable.
    """
    with ExitStack() as held:
        held.enter_context(desk.addresses.taken(request.remote_addr or ""))
        if not caller().is_anonymous:
            held.enter_context(desk.tokens.taken(caller().actor))
        yield held.enter_context(desk.hub.subscribed(watch))
