"""Subscriptions: the `@on` decorator, and the handlers of history entries that it registers."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeVar

from ..statemachine import STORED, UNRECORDED, Event
from .bounds import HANDLER_RETRIES, HANDLER_TIMEOUT, fault
from .errors import InvalidHandler
from .names import NAME
from .values import shown

Handler = TypeVar("Handler", bound=Callable[..., Any])

RECORDED: Final = frozenset(Event) - UNRECORDED
"""Events that stand in the history."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A handler with the entries that it wants: those of some events, and those that bring a task to rest in a state.

    `timeout` is the longest run of one try, in seconds. With `needed` only entries of tasks are wanted that have a
    value of this kind.
    """

    name: str
    place: str  # "module:function"
    wanted: tuple[str, ...]
    retries: int
    timeout: float
    needed: str = ""

    def handler(self) -> Callable[..., object]:
        """Import the module and return the function. Raises whatever the module raises."""
        module, _, function = self.place.partition(":")
        return getattr(import_module(module), function)


class Subscriptions:
    """Subscriptions by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Subscription] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._by_name.values())

    def load(self, modules: Iterable[str]) -> None:
        """Import modules, so that their handlers register. Raises whatever a module raises, InvalidHandler."""
        for module in modules:
            import_module(module)

    def on(
        self, *wanted: str, name: str | None = None, retries: int = 7, timeout: float = 30.0
    ) -> Callable[[Handler], Handler]:
        """Call the decorated function, after the fact, for each entry of the history that is wanted.

        `wanted` are events ("TIMEOUT") and states ("FAILED"). A state stands for coming to rest there: a failure that
        is retried is the event FAIL, and not the state FAILED. The function gets the `Entry` and a `Client`, and is
        called at least once for each entry. One that raises, or runs longer than `timeout` seconds (0.1 to 3600), is
        called again, up to `retries` times (0 to 100), after growing pauses, or when RetryLater says; then the entry
        is parked.

        `name` is what Redis remembers the subscription by, the function's name unless given. Raises InvalidHandler for
        whatever cannot be used.
        """

        def register(handler: Handler) -> Handler:
            self._add(_subscription(handler, wanted, name, retries, timeout))
            return handler

        return register

    def _add(self, subscription: Subscription) -> None:
        there = self._by_name.setdefault(subscription.name, subscription)
        if there.place != subscription.place:
            both = f"{there.place} and {subscription.place}"
            raise InvalidHandler(f"@on: two handlers have the name {subscription.name!r}, {both}; give one a name=")


def _subscription(
    handler: Callable[..., object], wanted: tuple[str, ...], name: str | None, retries: int, timeout: float
) -> Subscription:
    _check(handler, wanted)
    called = handler.__name__ if name is None else name
    if not NAME.fullmatch(called):
        raise _refusal(handler, "name", "1 to 64 of the characters A-Z a-z 0-9 . _ -", called)
    for argument, value, allowed in (("retries", retries, HANDLER_RETRIES), ("timeout", timeout, HANDLER_TIMEOUT)):
        wrong = fault(value, allowed)
        if wrong:
            raise InvalidHandler(f"@on {handler.__qualname__}: {argument}: {wrong}")
    place = f"{handler.__module__}:{handler.__qualname__}"
    return Subscription(called, place, tuple(dict.fromkeys(map(str, wanted))), retries, timeout)


def _check(handler: Callable[..., object], wanted: tuple[str, ...]) -> None:
    if not inspect.isfunction(handler) or handler.__qualname__ != handler.__name__:
        raise _refusal(handler, "handler", "a function at the top of its module", handler)
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError as error:
        raise _refusal(handler, "parameters", "(entry, client)", str(inspect.signature(handler))) from error
    unknown = [word for word in wanted or ("nothing",) if word not in RECORDED and word not in STORED]
    if unknown:
        expected = f"events ({', '.join(sorted(RECORDED))}) and states ({', '.join(STORED)})"
        raise _refusal(handler, "wanted", expected, unknown[0])


def _refusal(handler: object, argument: str, expected: str, got: object) -> InvalidHandler:
    which = getattr(handler, "__qualname__", shown(handler))
    return InvalidHandler(f"@on {which}: {argument}: expected {expected}, got {shown(got)}")


subscriptions = Subscriptions()
"""Where `@on` registers."""

on = subscriptions.on
