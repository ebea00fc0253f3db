"""What a task is to do, in plain Python and in words of its own: the oracle that the scripts are compared with.

It knows neither the transition table nor Redis. Times are left out: who uses it says what is due and who is lost.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

FINAL = {"SUCCESS", "FAILED", "TIMEOUT_CANCELLED", "CANCELLED"}
RUNNING = {"PROCESSING", "PAUSING", "CANCELLING"}
WAITING_FOR_TIME = {"SCHEDULED", "RETRY_WAITING"}

LIMIT = 1
"""Further attempts that each of the three budgets allows."""

TIMEOUT, EXTENSION, LONGEST_RUN = 1_800_000, 600_000, 2_700_000
"""Milliseconds that an attempt may run, what it gets more each time, and how long it may run in all."""


@dataclass
class Model:
    """One task. Each verb returns the word that its caller is to be told."""

    id: str
    type: str
    queue: str
    fingerprint: str = ""
    state: str = ""
    attempt: int = 0
    token: str = ""  # of the last attempt, until it was taken away from its worker
    worker: str = ""
    used: dict[str, int] = field(default_factory=dict)
    entries: list[tuple[str, str, str, int]] = field(default_factory=list)
    unmet: set[str] = field(default_factory=set)  # those that it waits for
    heeded: set[tuple[str, str]] = field(default_factory=set)  # how it met the ends of those, and these ends
    has_time: bool = False  # it also waits for a time
    is_due: bool = False  # its waiting time is over
    is_lost: bool = False  # its lease is over
    is_overdue: bool = False  # its worker should have ended it long ago
    may_run: int = TIMEOUT  # ms, from the start of its attempt
    is_batched: bool = False  # its attempt was started together with others
    has_callback: bool = False  # its ends are to be told
    rests: list[bool] = field(default_factory=list)  # by entry, whether it came to rest in another state by it

    @property
    def number(self) -> int:
        """Its place in the order of the submits."""
        return int(self.id.removeprefix("t"))

    @property
    def met(self) -> set[tuple[str, ...]]:
        """Its moves, and the ends of others that it followed."""
        return {(source, event) for event, source, _, _ in self.entries} | self.heeded

    def tells(self, number: int, wanted: Collection[str]) -> bool:
        """Whether an entry is one for who wants these events, and states in which it comes to rest."""
        event, _, state, _ = self.entries[number]
        return event in wanted or (state in wanted and self.rests[number])

    def _go(self, event: str, state: str, *, passes: bool = False) -> str:
        self.entries.append((event, self.state, state, self.attempt))
        self.rests.append(state != self.state and not passes)
        self.state = state
        return "moved"

    # Its beginning

    def submit(self, is_delayed: bool, unmet: set[str], ends: set[str]) -> str:
        """Accept it, with the ends of those that it depends on. After a bad end it is over at once."""
        self.unmet, self.has_time = unmet, is_delayed
        self.heeded = {("found", end) for end in ends}
        if ends - {"SUCCESS"}:
            self._go("SUBMIT", "BLOCKED", passes=True)
            return self._go("CANCEL", "CANCELLED")
        return self._go("SUBMIT", "BLOCKED" if unmet else "SCHEDULED" if is_delayed else "PENDING")

    def release(self) -> int:
        """Its time has come: that is all that it waited for, unless it waits for others too."""
        self.has_time = self.is_due = False
        if self.unmet:
            return 0
        self._go("RELEASE", "PENDING")
        return 1

    def heed(self, tasks: Mapping[str, "Model"]) -> bool:
        """Follow the ends of those that it waits for; tell whether it moved."""
        ends = {other: tasks[other].state for other in self.unmet if tasks[other].state in FINAL}
        self.heeded |= {("awaited", end) for end in ends.values()}
        if set(ends.values()) - {"SUCCESS"}:
            self._go("CANCEL", "CANCELLED")
            return True
        self.unmet -= ends.keys()
        if self.unmet or (self.has_time and not self.is_due):
            return False
        return bool(self.release())

    def start(self, worker: str, token: str, *, is_batched: bool = False) -> None:
        """A worker takes it, alone or with others."""
        self.attempt += 1
        self.is_batched = is_batched
        self.worker, self.token = worker, token
        self.is_lost = self.is_overdue = self.is_due = False
        self.may_run = TIMEOUT
        self._go("START", "PROCESSING")

    # People

    def cancel(self) -> str:
        """Whoever runs it must be asked to stop; else it ends at once."""
        if self.state in FINAL or self.state == "CANCELLING":
            return "already"
        return self._go("CANCEL", "CANCELLING" if self.state in RUNNING else "CANCELLED")

    def pause(self) -> str:
        """What has no time of its own to wait for, and has not ended, can be paused."""
        if self.state in ("PAUSED", "PAUSING"):
            return "already"
        if self.state in FINAL or self.state in ("SCHEDULED", "BLOCKED", "CANCELLING"):
            return "refused"
        return self._go("PAUSE", "PAUSING" if self.state in RUNNING else "PAUSED")

    def resume(self) -> str:
        """Only a pause can be ended; what goes on anyhow needs no resuming."""
        if self.state in ("PENDING", "PROCESSING"):
            return "already"
        if self.state not in ("PAUSED", "PAUSING"):
            return "refused"
        return self._go("RESUME", "PENDING" if self.state == "PAUSED" else "PROCESSING")

    def retry(self) -> str:
        """What ended badly has another life, at once and with fresh budgets."""
        if self.state in ("RETRY_WAITING", "PENDING", "PROCESSING"):
            return "already"
        if self.state not in ("FAILED", "TIMEOUT_CANCELLED"):
            return "refused"
        self.used.clear()
        self.is_due = True
        return self._go("RETRY", "RETRY_WAITING")

    # The attempt's worker

    def holds(self, attempt: int, token: str) -> str:
        """Tell an attempt what it is to this task: "moved" for the one that holds it."""
        if (attempt, token) != (self.attempt, self.token):
            return "stale"
        return "moved" if self.state in RUNNING else "already"

    def stage(self) -> str:
        """One that is to stop reaches no further stage."""
        return "refused" if self.state == "CANCELLING" else self._go("STAGE", self.state)

    def gets_more_time(self, has_reported: bool) -> bool:
        """It has run for as long as it may: who reported since the last time goes on, up to a bound."""
        if not has_reported or self.may_run == LONGEST_RUN:
            return False
        self.may_run = min(self.may_run + EXTENSION, LONGEST_RUN)
        self.is_lost = self.is_overdue = False
        return True

    def end(self, event: str, budget: str = "", *, retryable: bool = True) -> str:
        """The attempt ends. A cancel wins over everything, a pause over a retry."""
        if self.state == "CANCELLING":
            return self._go(event, "CANCELLED")
        if event == "STOPPED":  # nobody asked for it
            return "refused"
        if event == "COMPLETE":
            return self._go("COMPLETE", "SUCCESS")
        if event == "SUSPEND":
            return self._suspend()
        return self._end_badly(event, budget, retryable)

    def _suspend(self) -> str:
        was_asked_for = self.state == "PAUSING"
        self._go("SUSPEND", "PAUSED", passes=not was_asked_for)
        return "moved" if was_asked_for else self._go("RESUME", "PENDING")

    def _end_badly(self, event: str, budget: str, retryable: bool) -> str:
        was_pausing, used = self.state == "PAUSING", self.used.get(budget, 0)
        self.used[budget] = used + 1
        self.is_due = False
        if event == "TIMEOUT" and was_pausing:
            return self._go("TIMEOUT", "PAUSED")
        has_another = retryable and used < LIMIT
        self._go(event, "TIMEOUT" if event == "TIMEOUT" else "FAILED", passes=has_another or event == "TIMEOUT")
        if has_another:
            self._go("RETRY", "RETRY_WAITING", passes=was_pausing)
            return self._go("PAUSE", "PAUSED") if was_pausing else "moved"
        return self._go("GIVE_UP", "TIMEOUT_CANCELLED") if event == "TIMEOUT" else "moved"

    def is_as_after(self, event: str) -> bool:
        """Whether an attempt that ended so, and says it again, may have left its task like this."""
        if event == "COMPLETE":
            return self.state in ("SUCCESS", "CANCELLED")
        return self.state == "CANCELLED" if event == "STOPPED" else self.state != "SUCCESS"

    def take_away(self, budget: str) -> None:
        """Its worker is gone, or does not end it: nothing that worker says counts any more.

        Of several nobody knows which one ended their worker: it costs none of them anything.
        """
        used = dict(self.used)
        self.end("TIMEOUT", budget)
        if self.is_batched and budget == "losses":
            self.used = used
        self.token = ""

    def requeue(self) -> None:
        """Its ticket was gone, and is made anew."""
        self._go("REQUEUE", "PENDING")

    def mend(self) -> None:
        """What stands around it was put right; itself it stays as it is."""
        self._go("REPAIR", self.state)


def settle(tasks: Mapping[str, Model]) -> None:
    """Let all that wait for others follow their ends, and then those that wait for them."""
    while any([task.heed(tasks) for task in tasks.values() if task.state == "BLOCKED"]):
        pass
