"""What a chaos run says is true: it sees the overlaps, the deaths and the faults that it looks for."""

from collections import Counter
from pathlib import Path

import pytest
from faults import chaos
from faults.chaos_report import FROZEN, Death, Report, effects, overlaps, told
from ghostless.jobs.model import Entry
from ghostless.statemachine import Event, Reason

DEATH = Death("kill_worker", "t1", at=100.0)


def written(folder: Path, *notes: tuple[int, int, float]) -> Path:
    """Return a trace with these notes: attempt, process and time."""
    trace = folder / "t1"
    trace.write_text("".join(f"{attempt} {process} {at}\n" for attempt, process, at in notes))
    return trace


@pytest.mark.parametrize(
    ("notes", "number"),
    [
        ([(1, 10, 1.0), (1, 10, 1.2), (2, 11, 1.3), (2, 11, 1.5)], 0),
        ([(1, 10, 1.0), (1, 10, 1.4), (2, 11, 1.3), (2, 11, 1.5)], 1),
        ([(1, 10, 1.0), (2, 11, 1.3), (3, 12, 1.2), (2, 11, 1.5)], 1),
        # Frozen for longer than its lease: a moment more is nobody's fault, more than a moment is.
        ([(1, 10, 1.0), (2, 11, 3.0), (1, 10, 1.0 + FROZEN + 2.5)], 0),
        ([(1, 10, 1.0), (2, 11, 3.0), (1, 10, 5.0), (1, 10, 5.4)], 1),
    ],
)
def test_overlaps_are_seen(tmp_path: Path, notes: list[tuple[int, int, float]], number: int) -> None:
    """An attempt that notes something after a later one began ran beside it."""
    assert number == len(list(overlaps(written(tmp_path, *notes))))


def test_each_process_that_ran_an_attempt_counts(tmp_path: Path) -> None:
    """An attempt that began in two processes had its effect twice."""
    assert [1, 2, 2] == effects(written(tmp_path, (1, 10, 1.0), (1, 10, 1.1), (2, 11, 2.0), (2, 12, 2.0)))


def entry(event: Event, at: float, reason: Reason = Reason.POLICY) -> Entry:
    """Return a move at this second."""
    fields = {
        "task": "t1", "type": "work", "queue": "q", "owner": "", "event": event, "from": "PROCESSING", "to": "FAILED",
        "attempt": "1", "actor": "watchdog", "reason": reason, "message": "",
    }  # fmt: skip
    return Entry.from_fields(f"{round(1000 * at)}-0", fields)


def test_the_times_after_a_death_are_told() -> None:
    """Noticed by the loss, over with the next start; whose attempt ended by itself is no death."""
    lost, again = entry(Event.FAIL, 101.5, Reason.WORKER_LOST), entry(Event.START, 103.0)
    seen = told(DEATH, [lost, again])
    assert (1.5, 3.0, "") == (seen.noticed, seen.restarted, seen.spared)
    spared = told(DEATH, [entry(Event.COMPLETE, 100.1)])
    assert spared.noticed is None
    assert "its attempt told as COMPLETE" in spared.spared
    assert "did not run again" in told(DEATH, [lost]).spared


@pytest.mark.parametrize("kind", ["violations", "overlaps", "wrong_ends", "left"])
def test_whatever_is_broken_makes_a_run_fail(kind: str) -> None:
    """And is shown; a run without any of it is clean."""
    report = Report(3, Counter(cut=1), Counter(SUCCESS=3), [], [], [], 0, 0.5, [])
    assert report.is_clean
    getattr(report, kind).append("a: t1 is nowhere")
    assert not report.is_clean
    assert "a: t1 is nowhere" in str(report)


def test_what_is_printed() -> None:
    """All that a person asks of a run: what was accepted and how it ended, what must be zero, and the times."""
    deaths = [Death("kill_worker", f"t{n}", 100.0, noticed=float(n), restarted=n + 1.0) for n in (1, 2, 3)]
    broken = ["a: t7 is in no state", "e: t8 went from SUCCESS to PENDING"]
    report = Report(9, Counter(cut=2), Counter(SUCCESS=7), broken, ["overlap: t1"], [], 4, 1.25, deaths)
    lines = [" ".join(line.split()) for line in str(report).splitlines()]
    assert [
        *("faults {'cut': 2}", "accepted 9", "ended {'SUCCESS': 7}", "lost 1", "illegal histories 1", "overlaps 1"),
        *(
            "wrong ends 0",
            "untold ends 0",
            "audit violations 2",
            "left behind 0",
            "stale writes 4 refused",
            "draining 1.2 s",
        ),
        *("kill_worker 3 while a task ran", "noticed after p50 2.0 s, p99 3.0 s, max 3.0 s (n = 3)"),
        *("ran again after p50 3.0 s, p99 4.0 s, max 4.0 s (n = 3)", *broken, "overlap: t1"),
    ] == lines


@pytest.mark.parametrize(("violations", "code"), [([], 0), (["a: t7 is in no state"], 1)])
def test_the_exit_code_tells_whether_all_held(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    violations: list[str],
    code: int,
) -> None:
    """And the seed with which it can be run again is told first."""
    report = Report(1, Counter(), Counter(SUCCESS=1), violations, [], [], 0, 0.0, [])
    monkeypatch.setattr(chaos, "run", lambda folder, seconds, seed: report)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["chaos", "--seconds", "3", "--seed", "42"])
    assert code == chaos.main()
    assert capsys.readouterr().out.startswith("seed 42, 3 s\n")
