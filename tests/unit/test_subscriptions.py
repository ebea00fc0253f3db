"""The `@on` decorator: what it registers, and what it refuses where it is written."""

import pickle
from typing import Any

import pytest
from ghostless.jobs.errors import InvalidHandler
from ghostless.jobs.subscriptions import Subscriptions
from ghostless.statemachine import STORED, UNRECORDED, Event


def tell(entry: object, client: object) -> None:
    """Handle nothing."""


async def tell_later(entry: object, client: object) -> None:
    """Handle nothing, either."""


def registered(*wanted: str, handler: Any = tell, **terms: Any) -> Any:
    """Register a handler and return its subscription."""
    there = Subscriptions()
    assert there.on(*wanted, **terms)(handler) is handler, "the function stays as it is"
    [subscription] = there
    return subscription


def test_a_subscription_is_called_as_its_function() -> None:
    """And knows where the function is, so that another process can import it."""
    subscription = registered("TIMEOUT", "FAILED", "TIMEOUT")
    assert ("tell", ("TIMEOUT", "FAILED")) == (subscription.name, subscription.wanted)
    assert (7, 30.0) == (subscription.retries, subscription.timeout)
    assert subscription.place.endswith(":tell")
    assert subscription == pickle.loads(pickle.dumps(subscription))


def test_a_name_and_terms_may_be_given() -> None:
    """The name is what Redis knows it by, so it may outlive the function's."""
    subscription = registered("FAIL", handler=tell_later, name="page-on-call", retries=0, timeout=600)
    assert ("page-on-call", 0, 600) == (subscription.name, subscription.retries, subscription.timeout)


@pytest.mark.parametrize("word", [*sorted(frozenset(Event) - UNRECORDED), *STORED])
def test_every_event_of_the_history_and_every_state_can_be_wanted(word: str) -> None:
    """By its name in capitals."""
    assert (word,) == registered(word).wanted


@pytest.mark.parametrize(
    ("wanted", "terms", "said"),
    [
        ((), {}, "wanted: expected events .* got 'nothing'"),
        (("Failed",), {}, "got 'Failed'"),
        (("HEARTBEAT",), {}, "got 'HEARTBEAT'"),
        (("PROGRESS",), {}, "got 'PROGRESS'"),
        (("FAIL",), {"name": "a b"}, "name: expected 1 to 64 .* got 'a b'"),
        (("FAIL",), {"name": ""}, "name"),
        (("FAIL",), {"retries": -1}, "retries: expected a whole number from 0 to 100, got -1"),
        (("FAIL",), {"retries": 1.5}, "retries"),
        (("FAIL",), {"timeout": 0}, "timeout: expected a number of seconds from 0.1 to 3600, got 0"),
        (("FAIL",), {"timeout": "30"}, "timeout"),
    ],
)
def test_what_cannot_be_used_is_refused(wanted: tuple[str, ...], terms: dict[str, Any], said: str) -> None:
    """Where it is written, with what was expected."""
    with pytest.raises(InvalidHandler, match=said):
        registered(*wanted, **terms)


@pytest.mark.parametrize(
    "handler", [lambda entry, client: None, lambda: None, print, object(), type("Tell", (), {})().__init__]
)
def test_what_another_process_could_not_import_or_call_is_refused(handler: Any) -> None:
    """A function inside another one, a method, and one that does not take an entry and a client."""
    with pytest.raises(InvalidHandler):
        registered("FAIL", handler=handler)


def test_a_function_with_other_parameters_is_refused() -> None:
    """It must take the entry and the client by position."""

    def wrong(entry: object) -> None:
        """Take too little."""

    wrong.__qualname__ = "wrong"
    with pytest.raises(InvalidHandler, match=r"parameters: expected '?\(entry, client\)"):
        registered("FAIL", handler=wrong)


def test_two_handlers_of_one_name_are_refused() -> None:
    """They would share a group, and each entry would reach only one; the same one may be registered again."""
    there = Subscriptions()
    there.on("FAIL")(tell)
    there.on("FAIL")(tell)
    there.on("FAIL", name="other")(tell_later)
    with pytest.raises(InvalidHandler, match="two handlers have the name 'tell'.*give one a name="):
        there.on("FAIL", name="tell")(tell_later)
