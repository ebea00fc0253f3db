"""What the demo paints, and what is to become of each picture."""

from dataclasses import dataclass
from typing import Any

from ...statemachine import State

SIDE, DETAIL = 512, 6
"""Pixels of a side, and passes over it: a few seconds of one core."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One task of the demo."""

    prompt: str
    seed: int
    detail: int = DETAIL
    fails_first: bool = False
    is_cancelled: bool = False

    @property
    def params(self) -> dict[str, Any]:
        """The params of its task."""
        return {
            "prompt": self.prompt,
            "seed": self.seed,
            "width": SIDE,
            "height": SIDE,
            "detail": self.detail,
            "fail_first": self.fails_first,
        }

    @property
    def expected(self) -> State:
        """The state in which it must end."""
        return State.CANCELLED if self.is_cancelled else State.SUCCESS


PICTURES = (
    Picture("a lighthouse at dusk", 7),
    Picture("tide pools under a green moon", 21, fails_first=True),
    Picture("a paper dragon over the harbour", 3),
    Picture("a city that forgot its name", 11, detail=2 * DETAIL, is_cancelled=True),
    Picture("the inside of a clock", 5),
    Picture("northern lights, folded", 42),
)
