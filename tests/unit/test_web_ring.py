"""The newest moves in memory: which places they know, and that they are told by parts that many share."""

import pytest
from ghostless.jobs.model import Entry
from ghostless.web import ring as ring_module
from ghostless.web.frames import Moment
from ghostless.web.ring import PARTS, Ring
from ghostless.web.rooms import PENDING_LIMIT
from ghostless.web.watch import Watch


@pytest.fixture
def ring() -> Ring:
    """A ring whose moves begin behind 100."""
    ring = Ring()
    ring.clear((100, 0))
    return ring


def add(ring: Ring, *numbers: int) -> None:
    """Let moves happen; those with an even number are bob's."""
    for number in numbers:
        owner = "ann" if number % 2 else "bob"
        entry = Entry(f"{100 + number}-0", "t", "SUBMIT", "", "PENDING", 0, "a", "user", "", "work", "q", owner)
        ring.append(Moment(entry))


def told(ring: Ring, number: int, watch: Watch | None = None) -> list[int] | None:
    """Return which moves memory tells next after a move; None when it does not know the place."""
    part = ring.after(watch or Watch(), (100 + number, 0))
    return None if part is None else [moment.at[0] - 100 for moment in part.moves.moments]


def test_memory_answers_who_was_away_for_a_moment(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest moves come from memory; it does not know places before them, beyond them or between two of them."""
    monkeypatch.setattr(ring_module, "RING", 10)
    add(ring, *range(1, 31))
    assert [26, 27, 28, 29, 30] == told(ring, 25)
    assert list(range(21, 31)) == told(ring, 20)
    assert [] == told(ring, 30)
    for elsewhere in ((119, 0), (125, 1), (130, 1), (0, 0)):
        assert ring.after(Watch(), elsewhere) is None


def test_memory_answers_by_parts_until_all_is_told(ring: Ring) -> None:
    """No part looks at more than waits in a room, whoever's moves they are; later more follows from where it ended."""
    add(ring, *range(1, PENDING_LIMIT + 11))
    first = ring.after(Watch(owner="ann"), (100, 0))
    assert first is not None
    assert (PENDING_LIMIT // 2, (100 + PENDING_LIMIT, 0)) == (len(first.moves.moments), first.reached)
    assert 5 == len(told(ring, PENDING_LIMIT, Watch(owner="ann")) or [])
    assert [] == told(ring, PENDING_LIMIT + 10)
    add(ring, 1001)
    assert [1001] == told(ring, PENDING_LIMIT + 10)


def test_those_who_lack_the_same_share_a_part(ring: Ring) -> None:
    """It is the same object for all of them; few are kept, and none of a history that is no more."""
    add(ring, *range(1, PARTS + 10))
    assert ring.after(Watch(), (100, 0)) is ring.after(Watch(), (100, 0))
    for number in range(PARTS + 5):
        told(ring, number)
    assert PARTS == len(ring._parts)
    ring.clear((100, 0))
    assert [] == told(ring, 0)
