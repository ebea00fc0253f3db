"""Each kind of violation is told by the doctor in one line: the rule, whose it is, what is wrong, and the remedy."""

import ast
import inspect
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from ghostless.jobs import doctor, endings, shapes, tickets
from ghostless.jobs.cli import main
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from integration.doctor_cases import CASES
from integration.doctor_lines import LINES
from redis import Redis
from scripts.seeding import BY_PERSON, Scene, put, scene

REMEDIES = {
    "repairable": "--repair puts it right",
    "remains": "--repair removes it",
    "later": "the watchdog, or --repair, makes a new ticket",
    "kept": "it cannot be put right: look at it by hand",
}
"""What a line says of the repair before it is asked for."""

QUICK = {"GHOSTLESS_BEAT": "0.05", "GHOSTLESS_LEASE": "1.5", "GHOSTLESS_SWEEP": "0.1"}


@pytest.fixture
def exact(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store for a doctor, for whom a ticket may be missing for a tenth of a second only."""
    monkeypatch.setattr("ghostless.jobs.tickets.SECOND_LOOK", 0.01)
    quick = Settings.from_environment({**QUICK, "GHOSTLESS_REDIS_URL": settings.redis_url})
    with connect(quick, exact=True) as redis:
        yield Store(redis, quick)


def broken(redis: Redis, name: str) -> Scene:
    """Return the scene of a case, broken."""
    state, breaks = CASES[name]
    stage = scene(redis)
    stage.start_over()
    put(stage, state)
    breaks(stage)
    return stage


def shortened(line: str) -> str:
    """Return a line without the times and ids in it that differ from run to run."""
    return re.sub(r"\d{13,15}(-\d+)?|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}", "#", line)


@pytest.mark.parametrize("name", CASES)
def test_each_kind_has_its_line(redis: Redis, exact: Store, settings: Settings, name: str) -> None:
    """With --repair what can be put right is, and the command ends well; the rest is told again."""
    broken(redis, name)
    wanted = [f"{rule}: {task_id}: {what}; {REMEDIES[outcome]}" for rule, task_id, what, outcome in LINES[name]]
    assert sorted(wanted) == sorted(shortened(str(problem)) for problem in Doctor(exact).audit())
    list(Doctor(exact, BY_PERSON).audit())
    told = CliRunner().invoke(main, ["doctor"], env={**QUICK, "GHOSTLESS_REDIS_URL": settings.redis_url})
    left = [line for line, (_, _, _, outcome) in zip(wanted, LINES[name], strict=True) if outcome == "kept"]
    assert told.exit_code == bool(left), told.output
    assert [line for line in left if line not in shortened(told.output)] in ([], ANOTHER.get(name, []))


ANOTHER = {
    "an entry of another task": ["e: t1: entry 2 is of another task; it cannot be put right: look at it by hand"]
}
"""What is told in other words after a repair, since that removed what belonged to nobody."""


def test_a_broken_table_has_its_line(redis: Redis, exact: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in Redis can break it."""
    monkeypatch.setattr("ghostless.jobs.doctor.graph.problems", lambda: ["PAUSED has no way out"])
    (problem,) = Doctor(exact).audit()
    assert f"e: -: the transition table: PAUSED has no way out; {REMEDIES['kept']}" == str(problem)


# That no kind is missing

MODULES = (doctor, endings, shapes, tickets)
TELLING = {"Problem", "Finding", "_finding", "_removed", "_damaged"}
"""What makes a line in these modules."""

TOLD_BY_REPAIR = ("a delivery without a record", "a delivery of what was purged")
"""Where only the repair finds out what can be put right."""

Line = tuple[str, int]
"""A file, and a number in it."""


def test_no_kind_is_missing(redis: Redis, exact: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever place in the code or in the script tells something, one of the cases makes it do so."""
    places, told = number_places(exact), ""
    with lines_run() as run:
        for name in CASES:
            broken(redis, name)
            told += " ".join(map(str, Doctor(exact).audit()))
            if name in TOLD_BY_REPAIR:
                list(Doctor(exact, BY_PERSON).audit())
        monkeypatch.setattr("ghostless.jobs.doctor.graph.problems", lambda: ["it is broken"])
        list(Doctor(exact).audit())
    assert {} == {number: code for number, code in places.items() if number not in told}
    assert [] == [sorted(at)[0] for module in MODULES for at in tellings(module) if run.isdisjoint(at)]


def number_places(store: Store) -> dict[str, str]:
    """Put before whatever the comparing script tells the number of the place that tells it; return the places."""
    places: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        places[f"@{len(places)}@"] = found[0]
        return f'{found[1]}"@{len(places) - 1}@" .. {found[2]}'

    scripts = store.scripts._scripts
    text = re.sub(r'(\b(?:tell|report)\((?:look, |id, )?"\w", )(.*)', number, str(scripts["repair"].script))
    first, last = text.index("local function fault_of("), text.index("local function replay(")
    faults = re.sub(r"(return )(string.*|\".*)", number, text[first:last])
    text = text[:first] + faults + re.sub(r'(and )("is not newer.*)', number, text[last:])
    scripts["repair"] = store.redis.register_script(text)
    return places


def tellings(module: ModuleType) -> list[set[Line]]:
    """Return the lines of each place in a module that makes what is told."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    names = [(node, getattr(node.func, "id", getattr(node.func, "attr", ""))) for node in calls]
    spans = [range(node.lineno, (node.end_lineno or 0) + 1) for node, name in names if name in TELLING]
    return [{(str(module.__file__), line) for line in span} for span in spans]


@contextmanager
def lines_run() -> Generator[set[Line]]:
    """Note which lines of these modules are run."""
    files, run, before = {module.__file__ for module in MODULES}, set[Line](), sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        run.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        yield run
    finally:
        sys.settrace(before)
