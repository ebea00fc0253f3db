"""What follows from each try of a delivery."""

from dataclasses import replace

import pytest
from ghostless.jobs.delivery import LONGEST_ASKED, TRIED_FOR, TRIES_KEPT, Delivery, DeliveryState, Try
from ghostless.jobs.errors import CorruptRecord
from ghostless.jobs.model import Entry

AT = 1_796_000_000_000
ENTRY = Entry(f"{AT}-0", "t1", "FAIL", "PROCESSING", "FAILED", 1, "worker:w1", "exception", "it broke", "demo", "q")
NEW = Delivery(ENTRY, "https://example.com/hook")


@pytest.mark.parametrize(("fraction", "least", "most"), [(0.0, 1000, 100_000), (0.5, 20, 40), (0.999, 12, 22)])
def test_it_is_tried_for_a_day(fraction: float, least: int, most: int) -> None:
    """Whatever the jitter, the last try is within a day of the first, and there are not too many."""
    delivery, at, wait, number = NEW, AT, 0, 0
    while wait is not None:
        delivery, wait = delivery.tried(Try(at, 10, 500), 0, fraction)
        number += 1
        assert at <= AT + TRIED_FOR + 60_000
        at += (wait or 0) + 60_000 * (fraction == 0)  # a try takes its time
    assert least <= number <= most
    assert (DeliveryState.GIVEN_UP, AT) == (delivery.state, delivery.since)
    assert min(number, TRIES_KEPT) == len(delivery.tries)


@pytest.mark.parametrize(("asked", "least"), [(0, 0), (90_000, 90_000), (10**12, LONGEST_ASKED)])
def test_no_sooner_than_was_asked_for(asked: int, least: int) -> None:
    """Up to a bound."""
    _, wait = NEW.tried(Try(AT, 10, 503), asked, 0.5)
    assert wait is not None
    assert least <= wait <= least + 5_000


@pytest.mark.parametrize(
    ("status", "state"),
    [(200, "delivered"), (204, "delivered"), (410, "gone"), (300, "waiting"), (199, "waiting"), (0, "waiting")],
)
def test_where_an_answer_leads(status: int, state: str) -> None:
    """Only 2xx is taken, and only 410 ends it."""
    delivery, wait = NEW.tried(Try(AT, 10, status), 0, 0.5)
    assert (state, state == "waiting") == (delivery.state, wait is not None)


def test_asked_for_again_it_has_another_day() -> None:
    """What was tried stays known."""
    delivery = replace(NEW, number=9, since=1, state=DeliveryState.GIVEN_UP, tries=(Try(1, 2, 500),)).anew()
    after, wait = delivery.tried(Try(AT, 10, 500), 0, 0.999)
    assert (AT, 2, True) == (after.since, len(after.tries), wait is not None and wait < 5_000)


def test_a_record_is_read_as_it_was_written() -> None:
    """And nothing else is taken for one."""
    delivery, _ = NEW.tried(Try(AT, 10, 0, "the connection was refused"), 0, 0.5)
    assert delivery == Delivery.unpack(delivery.pack())
    for broken in ("", "[]", "{}", NEW.pack()[:-1], replace(NEW, url="http:///").pack()):
        with pytest.raises(CorruptRecord):
            Delivery.unpack(broken)
    with pytest.raises(CorruptRecord):
        Delivery.unpack(replace(NEW, entry=replace(ENTRY, id="9" * 16 + "-0")).pack())
