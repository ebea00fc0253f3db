"""Waiting for a request: within what the process, the caller's token and its address may hold.

There is one of these for each stream, and it lasts as long: so they are small, and no generators.
"""

from contextlib import ExitStack

from flask import request

from .access import caller
from .desk import Desk
from .rooms import Subscription
from .watch import Watch


class Place:
    """A place among those who wait, held while a block runs, which may outlive the request."""

    __slots__ = ("_hub", "_shares")

    def __init__(self, desk: Desk) -> None:
        token = caller().credential.token
        self._hub = desk.hub
        self._shares = [desk.addresses.taken(request.remote_addr or "")]
        self._shares += [desk.tokens.taken(token.id)] if token else []

    def __enter__(self) -> None:
        """Take the place. Raises TooManyListeners, HubFull."""
        with ExitStack() as undo:
            for share in self._shares:
                undo.enter_context(share)
            self._hub.take_place()
            undo.pop_all()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Let another one have the place."""
        with ExitStack() as held:  # each is given back, whatever happens to the others
            for share in self._shares:
                held.callback(share.give_back)
            self._hub.leave_place()


class Listening:
    """A place, and an inbox for what happens, while a block runs, which may outlive the request."""

    __slots__ = ("_desk", "_inbox", "_place", "_watch")

    def __init__(self, desk: Desk, watch: Watch) -> None:
        self._desk, self._watch, self._place = desk, watch, Place(desk)
        self._inbox: Subscription | None = None

    def __enter__(self) -> Subscription:
        """Begin to listen. Raises TooManyListeners, HubFull, HubClosed, RedisUnavailable."""
        with ExitStack() as undo:
            undo.enter_context(self._place)
            self._inbox = self._desk.hub.subscribe(self._watch)
            undo.pop_all()
        return self._inbox

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more; twice does no harm."""
        inbox, self._inbox = self._inbox, None
        if inbox:
            try:
                self._desk.hub.unsubscribe(inbox)
            finally:
                self._place.leave()
