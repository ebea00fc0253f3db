"""One delivery of a callback: its record, and what follows from each try."""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from pydantic import TypeAdapter

from ..statemachine import Policy
from ..statemachine.budget import backoff
from .errors import CorruptRecord
from .model import Entry
from .receivers import Receiver
from .scripts import LAST_MOMENT
from .values import shown

PATIENCE: Final = Policy(backoff_base=5_000, backoff_cap=3 * 3_600_000)
"""The pauses between tries: up to 5 s after the first, then each up to twice as long, up to 3 hours."""

TRIED_FOR: Final = 86_400_000
"""How long a delivery is tried again after its first try, in ms."""

LONGEST_ASKED: Final = 3_600_000
"""The longest pause that a receiver may ask for, in ms."""

TRIES_KEPT: Final = 50
"""Tries whose outcome is kept, the last ones."""

GONE: Final = 410
"""The status by which a receiver says that it wants nothing any more."""


class DeliveryState(StrEnum):
    """Where a delivery stands. Only one that is WAITING is tried by itself."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Try:
    """One try: when by Redis' clock, and for how long, in ms. Without an answer the `status` is 0."""

    at: int
    took: int
    status: int = 0
    error: str = ""

    @property
    def was_taken(self) -> bool:
        """Whether the receiver has it now."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Delivery:
    """One end of a task, to be told to its callback. All that is needed for it, should the task be purged."""

    entry: Entry
    url: str
    state: DeliveryState = DeliveryState.WAITING
    number: int = 0  # of tries since it was last asked for
    since: int | None = None  # when the first of these was, in ms
    tries: tuple[Try, ...] = ()

    @property
    def id(self) -> str:
        """Its name among those of its task."""
        return self.entry.id

    @property
    def message_id(self) -> str:
        """What the receiver knows it by, the same with each try."""
        return f"{self.entry.task}-{self.id}"

    @property
    def type(self) -> str:
        """What is told, like "task.success"."""
        return f"task.{self.entry.to_state.lower()}"

    @property
    def receiver(self) -> Receiver:
        """Where it goes. Raises CorruptRecord when the URL is none."""
        try:
            return Receiver.parse(self.url)
        except ValueError as error:
            raise CorruptRecord(f"the callback of task {self.entry.task}: expected {error}") from error

    def tried(self, outcome: Try, asked: int, fraction: float) -> tuple["Delivery", int | None]:
        """Return it after one more try, and in how many ms the next one is, None for never.

        `asked` is the pause that the receiver asked for, in ms, `fraction` in [0, 1) the jitter.
        """
        since = outcome.at if self.since is None else self.since
        after = replace(self, number=self.number + 1, since=since, tries=(*self.tries, outcome)[-TRIES_KEPT:])
        if outcome.was_taken or outcome.status == GONE:
            state = DeliveryState.DELIVERED if outcome.was_taken else DeliveryState.GONE
            return replace(after, state=state), None
        wait = backoff(self.number, PATIENCE, fraction, min(asked, LONGEST_ASKED))
        if outcome.at + wait > since + TRIED_FOR:
            return replace(after, state=DeliveryState.GIVEN_UP), None
        return after, wait

    def anew(self) -> "Delivery":
        """Return it as it is when somebody asks for it again; what was tried stays known."""
        return replace(self, state=DeliveryState.WAITING, number=0, since=None)

    def pack(self) -> str:
        """Return the stored form."""
        return _JSON.dump_json(self).decode()

    @classmethod
    def unpack(cls, text: str) -> "Delivery":
        """Read the stored form. Raises CorruptRecord."""
        try:
            delivery = _JSON.validate_json(text)
            Receiver.parse(delivery.url)
            if not 0 < delivery.entry.at < LAST_MOMENT:
                raise ValueError(f"nothing ends at {shown(delivery.id)}")
        except ValueError as error:
            raise CorruptRecord(f"a delivery: {' '.join(str(error).split())}") from error
        return delivery

    def to_dict(self, next_at: int | None) -> dict[str, Any]:
        """Return the form for JSON, with the time of the next try in ms; of the URL only the host is told."""
        return {
            "id": self.id,
            "task": self.entry.task,
            "type": self.type,
            "receiver": self.receiver.place,
            "state": self.state,
            "next_at": next_at,
            "tries": [asdict(each) for each in self.tries],
        }


_JSON = TypeAdapter(Delivery)
