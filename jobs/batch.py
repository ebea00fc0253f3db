"""Short tasks of one type that a horse runs one after the other, so that a call to Redis is paid by many.

They are started in one call and ended in one. The horse does not wait for the worker between two of them, but begins
each with a permit only, and goes on only while each handler returns and says nothing. So at every moment the worker can
take back what is not begun: when one runs for longer than expected, is to stop, or when the worker itself is. Nobody
waits behind it then, and what has ended is told.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .horse_process import Horse
from .messages import Claimed, Ending
from .settle import Ended, given_back
from .supervisor import order

MOST = 12
"""Tasks that a worker takes at once: to end so many and to start as many takes Redis less than a millisecond."""

WINDOW = 0.01
"""Seconds that they should take together."""

AGE = 0.05
"""Seconds after which none waits any more, be they short by experience or not."""

_NOT_QUIET = 1.0
"""Seconds that count for a task behind which none could have begun."""

_OLD_SHARE = 0.75
"""What the runs before the last one count for in the recent mean; a longer run counts at once."""


class Pace:
    """How long the tasks of each type ran recently in this worker, and so how many of them it takes at once."""

    def __init__(self) -> None:
        self._recent: dict[str, float] = {}

    def note(self, task_type: str, seconds: float, *, goes_on: bool) -> None:
        """Note a run; `goes_on` tells whether the horse could have begun another one right behind it."""
        seconds = seconds if goes_on else max(seconds, _NOT_QUIET)
        recent = self._recent.get(task_type, seconds)
        self._recent[task_type] = max(seconds, _OLD_SHARE * recent + (1 - _OLD_SHARE) * seconds)

    def together(self) -> list[tuple[str, int]]:
        """Return the types of which several are taken at once, and how many."""
        most = ((name, min(MOST, int(WINDOW / recent))) for name, recent in self._recent.items())
        return [(name, number) for name, number in most if number > 1]


@dataclass(slots=True)
class Batch:
    """What one claim started, one task or several, from its first moment here until all ends are told.

    `folder_for` names the temporary folder of an attempt; `tell` is called with what has ended, and with what was not
    begun, when nothing may wait behind a task that goes on. `lease` is how long an attempt may run without a word, in
    seconds from its claim.
    """

    claimed: Claimed
    horse: Horse
    folder_for: Callable[[str, int], str]
    tell: Callable[[Sequence[Ended]], None]
    lease: float
    alone_by: float = field(default_factory=lambda: time.monotonic() + AGE)
    ended: list[Ended] = field(default_factory=list[Ended])
    rest: list[Claimed] = field(default_factory=list[Claimed])  # not begun, and free to be run next
    _left: list[Claimed] = field(init=False)  # the one that is watched, and those behind it
    _folders: dict[str, str] = field(default_factory=dict[str, str])  # by the tasks' ids
    _is_given: bool = False
    _was_begun: bool | None = None  # the one that was watched when nothing was to wait any more
    _teller: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._left = [self.claimed, *self.claimed.followers]

    def __iter__(self) -> Iterator[Claimed]:
        """Yield each task that the horse begins; `end` must be called before the next one."""
        while self._left:
            yield self._left[0]

    def give(self, first: Mapping[str, Any]) -> None:
        """Give the horse the order of the first task, and with it those of all others, unless these have to wait.

        That is so when their leases are old, since the worker was frozen, or when the horse has yet to pass over what
        was taken back: the end of the first tells that it did.
        """
        are_old = time.monotonic() >= self.claimed.asked_at + self.lease / 2
        if are_old or self.horse.permits.has_strays:
            self._left, self.rest = self._left[:1], self._left[1:]
        orders = [self._order(claimed) for claimed in self._left[1:]]
        self._is_given = True
        self.horse.run(first, *orders)

    def folder_of(self, claimed: Claimed) -> str:
        """Return the temporary folder of one of the attempts. Raises OSError when there can be none."""
        held = claimed.held
        if held.task_id not in self._folders:
            self._folders[held.task_id] = self.folder_for(held.task_id, held.attempt)
        return self._folders[held.task_id]

    @property
    def tells(self) -> bool:
        """Whether some of it was told, or is being told, while a task went on."""
        return self._teller is not None

    def go_alone(self) -> bool:
        """Let nothing wait behind the task that is watched, and tell what has ended; return whether it was begun."""
        if self._was_begun is None:
            back = self._take_back()
            self._was_begun = bool(self._left)
            self.ended += given_back([*back, *self.rest])
            self.rest = []
            self._tell()
        if len(self._left) == 1:
            self.horse.hand_out()
        return self._was_begun

    def end(self, ending: Ending | None, *, goes_on: bool) -> None:
        """Note the end of the task that is watched; unless the horse `goes_on`, it begins none of the others."""
        if self._left:  # else it was given back
            watched = self._left.pop(0)
            self.ended += [(watched, ending)] if ending else []
        if not goes_on:
            self.rest += self._take_back()

    def fail(self, ending: Ending) -> None:
        """End what was begun like this, after the horse was killed; what was not is given back."""
        begun, self._left = self._left[:1], self._left[1:]
        back = [*self.rest, *self._take_back()]
        self.ended += [*((one, ending) for one in (*begun, *self._left)), *given_back(back)]
        self._left, self.rest = [], []

    def close(self) -> None:
        """Wait until all is told, and let the output of others pass."""
        self.horse.hand_out()
        if self._teller:
            self._teller.join()

    def _order(self, claimed: Claimed) -> dict[str, Any]:
        return order(claimed, self.folder_of(claimed), claimed.asked_at + self.lease)

    def _take_back(self) -> list[Claimed]:
        number = self.horse.permits.take_back() if self._is_given else len(self._left)
        begun = len(self._left) - number
        back, self._left = self._left[begun:], self._left[:begun]
        return back

    def _tell(self) -> None:
        if self.ended:
            teller = threading.Thread(target=self.tell, args=(self.ended,), daemon=True)
            teller.start()
            self._teller, self.ended = teller, []
