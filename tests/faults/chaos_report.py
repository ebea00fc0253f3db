"""What a chaos run found out, and how it reads the notes of the handlers."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleet import QUICK
from ghostless.jobs.model import Entry
from ghostless.statemachine import LOSSES, Event

FROZEN = 0.75 * float(QUICK["GHOSTLESS_LEASE"])
"""Seconds between two notes of an attempt that was frozen."""

LAST_MOMENTS = 0.3
"""Seconds that a thawed process may go on until it ends itself."""

SHOWN = 20
"""Violations of each kind that are shown."""


@dataclass(frozen=True)
class Death:
    """The SIGKILL of what ran a task: the seconds until it was noticed and until the task ran again, None if never.

    `spared` says why it was not noticed as a death, or why the task did not run again.
    """

    fault: str
    task_id: str
    at: float
    noticed: float | None = None
    restarted: float | None = None
    spared: str = ""


@dataclass
class Report:
    """What a run found out."""

    accepted: int
    faults: Counter[str]
    states: Counter[str]
    violations: list[str]
    overlaps: list[str]
    wrong_ends: list[str]
    stale_writes: int
    draining: float  # seconds until everything was over, after the last fault
    deaths: list[Death]
    untold: list[str] = field(default_factory=list)  # ends of which no listener heard, or no callback is to come
    left: list[str] = field(default_factory=list)  # processes that outlived the run

    @property
    def is_clean(self) -> bool:
        """Whether every promise held."""
        return not self._broken()

    def _broken(self) -> list[str]:
        kinds = (self.violations, self.overlaps, self.wrong_ends, self.untold, self.left)
        return [what for kind in kinds for what in kind[:SHOWN]]

    def _told_of(self, fault: str) -> list[str]:
        deaths = [death for death in self.deaths if death.fault == fault]
        noticed = [death.noticed for death in deaths if death.noticed is not None]
        restarted = [death.restarted for death in deaths if death.restarted is not None]
        spared = Counter(death.spared for death in deaths if death.spared)
        return [
            f"{fault:17} {len(deaths)} while a task ran",
            f"{'':17} noticed after   {_spread(noticed)}",
            f"{'':17} ran again after {_spread(restarted)}",
            *(f"{'':17} {number} {why}" for why, number in sorted(spared.items())),
        ]

    def __str__(self) -> str:
        lost = sum(violation.startswith("a:") for violation in self.violations)
        illegal = sum(violation.startswith("e:") for violation in self.violations)
        lines = [
            f"faults            {dict(sorted(self.faults.items()))}",
            f"accepted          {self.accepted}",
            f"ended             {dict(sorted(self.states.items()))}",
            f"lost              {lost}",
            f"illegal histories {illegal}",
            f"overlaps          {len(self.overlaps)}",
            f"wrong ends        {len(self.wrong_ends)}",
            f"untold ends       {len(self.untold)}",
            f"audit violations  {len(self.violations)}",
            f"left behind       {len(self.left)}",
            f"stale writes      {self.stale_writes} refused",
            f"draining          {self.draining:.1f} s",
            *(line for fault in sorted({death.fault for death in self.deaths}) for line in self._told_of(fault)),
        ]
        return "\n".join([*lines, *self._broken()])


def told(death: Death, later: Sequence[Entry]) -> Death:
    """Return a death with what the history says after it."""
    moves = [entry for entry in later if entry.event != Event.STAGE]
    lost = next((entry for entry in moves if entry.reason in LOSSES), None)
    again = next((entry for entry in moves if entry.event == Event.START), None)
    if lost is None or (again and again.at < lost.at):  # the attempt had ended, by itself or by what was sent before
        ended = f"told as {moves[0].event}" if moves else "had ended"
        return replace(death, spared=f"were no death to the task: its attempt {ended}")
    noticed = lost.at / 1000 - death.at
    if again is None:
        return replace(death, noticed=noticed, spared=f"did not run again: the task ended in {moves[-1].to_state}")
    return replace(death, noticed=noticed, restarted=again.at / 1000 - death.at)


def _spread(seconds: list[float]) -> str:
    if len(seconds) < 2:
        return f"{seconds[0]:.1f} s (n = 1)" if seconds else "none (n = 0)"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"p50 {cuts[49]:.1f} s, p99 {cuts[98]:.1f} s, max {max(seconds):.1f} s (n = {len(seconds)})"


def _notes(trace: Path) -> Iterator[tuple[int, int, float]]:
    """Yield the attempt, the process and the time of each note of a task."""
    for line in trace.read_text().splitlines():
        attempt, pid, at = line.split()
        yield int(attempt), int(pid), float(at)


def effects(trace: Path) -> list[int]:
    """Return the attempts of a task in which its handler began, once for each process that ran it."""
    return [attempt for attempt, _ in dict.fromkeys((attempt, pid) for attempt, pid, _ in _notes(trace))]


def overlaps(trace: Path) -> Iterator[str]:
    """Tell which attempts of a task ran at the same time as a later one."""
    notes: dict[int, list[float]] = {}
    for attempt, _, at in _notes(trace):
        notes.setdefault(attempt, []).append(at)
    ran = {attempt: (times[0], _last_run(times)) for attempt, times in notes.items()}
    for earlier in ran:
        for later in ran:
            if earlier < later and ran[earlier][1] > ran[later][0]:
                yield f"overlap: attempt {earlier} of {trace.name} still ran when attempt {later} began"


def _last_run(times: list[float]) -> float:
    """Return when an attempt noted something last.

    A process that was frozen for longer than its lease may note once or twice more before it ends itself: the last
    moments after such a pause do not count, as long as they are moments.
    """
    for index in range(len(times) - 1, 0, -1):
        if times[index] - times[index - 1] > FROZEN:
            return times[index - 1] if times[-1] - times[index] < LAST_MOMENTS else times[-1]
    return times[-1]
