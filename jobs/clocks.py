"""The clocks of one running attempt: how long it may run, how long it may be silent, and what it gets on top."""

import math
from dataclasses import dataclass, field

from ..statemachine import Policy


@dataclass(slots=True)
class Clocks:
    """Tells when an attempt must be stopped. Its moments are seconds of the monotonic clock.

    A frozen worker finds its clocks over when it wakes: let it read what the handler sent meanwhile first.
    """

    policy: Policy
    started_at: float
    run: int = field(init=False)  # ms that the attempt may run, counted from its start
    _heard_at: float = math.inf  # when the handler began or last reported; never before its setup is over
    _has_reported: bool = False  # since the deadline was last looked at

    def __post_init__(self) -> None:
        self.run = self.policy.timeout

    def begin(self, now: float) -> None:
        """Note that the setup is over and the handler runs: from now on it may not be silent."""
        self._heard_at = now

    def excuse(self, now: float) -> None:
        """Let the silence begin anew: whoever listens was frozen himself, and cannot tell how long it was."""
        if self._heard_at < now:
            self._heard_at = now

    def report(self, now: float) -> None:
        """Note that the handler reported progress of any kind."""
        self._heard_at = now
        self._has_reported = True

    @property
    def ends_at(self) -> float:
        """When the attempt has run for as long as it may."""
        return self.started_at + self.run / 1000

    @property
    def silent_until(self) -> float:
        """When the handler must have reported again."""
        return self._heard_at + self.policy.stall_timeout / 1000 if self.policy.stall_timeout else math.inf

    @property
    def next_at(self) -> float:
        """When to look at the clocks again, if the handler says nothing."""
        return min(self.ends_at, self.silent_until)

    def extend(self, now: float) -> bool:
        """Move a deadline that has come, when the handler reported since it was last looked at; tell whether it was."""
        if now < self.ends_at or not self._has_reported or self.run >= self.policy.max_runtime:
            return False
        # From now on, so that a worker that was frozen over the deadline gives as much as one that was not.
        extended = round(1000 * (now - self.started_at)) + self.policy.extend_by
        self.run = min(extended, self.policy.max_runtime)
        self._has_reported = False
        return now < self.ends_at
