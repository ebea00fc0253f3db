"""When a schedule is due, also on the two days a year on which clocks change."""

import time
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from ghostless.jobs.errors import InvalidTask
from ghostless.jobs.recurrence import Recurrence
from hypothesis import given
from hypothesis import strategies as st

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN) -> int:
    """Return a local time as ms since 1970; one with an offset is taken as it is."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def following(recurrence: Recurrence, start: str, number: int) -> list[str]:
    """Return the next due times after a local time."""
    moment, found = at(start), list[str]()
    for _ in range(number):
        moment = recurrence.next_after(moment)
        found.append(datetime.fromtimestamp(moment / 1000, ZoneInfo(recurrence.zone)).isoformat())
    return found


@pytest.mark.parametrize(
    ("cron", "start", "dues"),
    [
        # 2025-03-30: 02:00 becomes 03:00. A fixed hour that is skipped runs once, right after.
        ("30 2 * * *", "2025-03-30T01:00", ["2025-03-30T03:00:00+02:00", "2025-03-31T02:30:00+02:00"]),
        ("0 2 * * *", "2025-03-30T01:00", ["2025-03-30T03:00:00+02:00", "2025-03-31T02:00:00+02:00"]),
        ("30 3 * * *", "2025-03-30T01:00", ["2025-03-30T03:30:00+02:00", "2025-03-31T03:30:00+02:00"]),
        ("*/30 * * * *", "2025-03-30T01:30", ["2025-03-30T03:00:00+02:00", "2025-03-30T03:30:00+02:00"]),
        # 2025-10-26: 03:00 becomes 02:00. A fixed hour that comes twice runs once; steps follow real time.
        ("30 2 * * *", "2025-10-26T01:00", ["2025-10-26T02:30:00+02:00", "2025-10-27T02:30:00+01:00"]),
        (
            "*/30 * * * *",
            "2025-10-26T02:00:00+02:00",
            ["2025-10-26T02:30:00+02:00", "2025-10-26T02:00:00+01:00", "2025-10-26T02:30:00+01:00"],
        ),
        ("0 9 * * 1", "2026-11-29T12:00", ["2026-11-30T09:00:00+01:00"]),
    ],
)
def test_cron_in_a_time_zone(cron: str, start: str, dues: list[str]) -> None:
    """A skipped hour runs once after it, a repeated one once, and the zone is the schedule's, not the machine's."""
    assert dues == following(Recurrence(cron, BERLIN), start, len(dues))


def test_an_interval_keeps_its_rhythm() -> None:
    """An interval counts from its start, however late a run was."""
    every = Recurrence(every=600_000, start=1_000)
    assert 601_000 == every.next_after(1_000)
    assert 1_201_000 == every.next_after(1_199_999)
    assert [601_000, 1_201_000] == every.latest(601_000, 1_300_000, 5)


@pytest.mark.parametrize(("milliseconds", "runs"), [(-1, 1), (0, 2), (1, 2), (999, 2)])
def test_no_run_is_due_before_its_time(milliseconds: int, runs: int) -> None:
    """A due time counts from its very millisecond on, and not in the second before."""
    recurrence, due = Recurrence("*/5 * * * *"), at("2025-01-01T12:05", "UTC")
    assert runs == len(recurrence.latest(at("2025-01-01T12:00", "UTC"), due + milliseconds, 10))


@given(
    st.sampled_from(["30 2 * * *", "*/7 * * * *", "0 0 1 * *", "15 */3 * * 1-5"]),
    st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe"]),
    st.integers(1_740_000_000, 1_770_000_000),
    st.integers(1, 40),
)
def test_looking_back_finds_what_looking_ahead_does(cron: str, zone: str, start: int, number: int) -> None:
    """The due times of a span are the same from either end."""
    recurrence = Recurrence(cron, zone)
    ahead = [recurrence.next_after(start * 1000)]
    while len(ahead) < number:
        ahead.append(recurrence.next_after(ahead[-1]))
    assert ahead == recurrence.latest(ahead[0], ahead[-1], number + 5)
    assert ahead[-3:] == recurrence.latest(ahead[0], ahead[-1] + 500, 3)[-len(ahead) :]


@pytest.mark.parametrize(
    ("recurrence", "field"),
    [
        (Recurrence(), "cron"),
        (Recurrence("* * * * *", every=5_000), "cron"),
        (Recurrence("61 * * * *"), "cron"),
        (Recurrence("nonsense"), "cron"),
        (Recurrence("0 0 31 2 *"), "cron"),
        (Recurrence("* * * * *", zone="Europe/Atlantis"), "tz"),
        (Recurrence(every=10), "every"),
        (Recurrence(every=0), "every"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(recurrence: Recurrence, field: str) -> None:
    """A schedule that would never run, or at an unknown place, is told at once."""
    with pytest.raises(InvalidTask) as caught:
        recurrence.check()
    assert field in [fault.field for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("cron", "day", "runs"),
    [
        ("30 2 * * *", "2025-03-30", 1),
        ("30 2 * * *", "2025-10-26", 1),
        ("0 2,3 * * *", "2025-10-26", 2),
        ("*/5 * * * *", "2025-03-30", 23 * 12),
        ("*/5 * * * *", "2025-10-26", 25 * 12),
        ("*/5 * * * *", "2025-10-27", 24 * 12),
    ],
)
def test_runs_on_the_days_on_which_clocks_change(cron: str, day: str, runs: int) -> None:
    """A fixed time runs once on each day, steps follow real time: a day has 23 hours, or 25 (B47)."""
    first = at(f"{day}T00:00")
    last = at((datetime.fromisoformat(day) + timedelta(days=1)).isoformat()) - 1
    assert runs == len(Recurrence(cron, BERLIN).latest(first, last, 1_000))


def test_the_zone_of_the_machine_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a scheduler runs: the due times are those of the schedule's own zone (B47)."""
    found = set()
    for zone in ("UTC", BERLIN, "Pacific/Auckland"):
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            found.add(tuple(following(Recurrence("30 2 * * *", BERLIN), "2025-03-29T00:00:00+00:00", 4)))
    time.tzset()
    assert 1 == len(found)


def test_the_names_of_zones_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand in hundreds of files, and a scheduler reads each schedule every second."""
    Recurrence(every=60_000).check()
    monkeypatch.delattr("ghostless.jobs.recurrence.available_timezones")
    Recurrence(every=60_000, zone="Europe/Berlin").check()
