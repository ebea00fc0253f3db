"""The floors of the house: imports only point down, in no circle, and never from inside a function."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLOORS = {
    0: (
        *(
            "statemachine",
            "lua",
            "jobs.errors",
            "jobs.settings",
            "jobs.keys",
            "jobs.rq_keys",
            "jobs.names",
            "jobs.spans",
        ),
        "jobs.installed",
    ),
    1: (
        *(
            "jobs.connection",
            "jobs.archive_file",
            "jobs.model",
            "jobs.messages",
            "jobs.scripts",
            "jobs.started",
            "jobs.record",
            "jobs.probe",
            "jobs.values",
            "jobs.bounds",
            "jobs.terms",
            "jobs.recurrence",
            "jobs.timetable",
            "jobs.signature",
            "jobs.masking",
            "jobs.inventory",
            "jobs.batches",
            "jobs.shelves",
            "jobs.foreign_schema",
            "jobs.schema_check",
            "jobs.references",
            "jobs.bulk",
            "jobs.receivers",
            "jobs.posting",
            "jobs.delivery",
        ),
        *("jobs.registry", "jobs.frames", "jobs.failure", "jobs.attempt", "jobs.context"),
        *(
            "jobs.tether",
            "jobs.workspace",
            "jobs.wakeup",
            "jobs.permits",
            "jobs.pauses",
            "jobs.output",
            "jobs.processes",
            "jobs.memory",
            "jobs.breaker",
            "jobs.subscriptions",
        ),
        *("jobs.presence", "jobs.gpus"),
    ),
    2: (
        *(
            "jobs.store",
            "jobs.watchdog_steps",
            "jobs.calls",
            "jobs.reads",
            "jobs.catalog",
            "jobs.submission",
            "jobs.fleet",
        ),
        *(
            "jobs.dependencies",
            "jobs.listing",
            "jobs.circumstances",
            "jobs.explanation",
            "jobs.schedules",
            "jobs.publishing",
            "jobs.diary",
            "jobs.availability",
            "jobs.account",
            "jobs.account_queue",
            "jobs.account_running",
            "jobs.account_ended",
            "jobs.whole",
            "jobs.groups",
            "jobs.tokens",
            "jobs.consumer",
            "jobs.upkeep",
            "jobs.tickets",
            "jobs.preflight",
            "jobs.remote",
            "jobs.beats",
            "jobs.bulk_actions",
            "jobs.endings",
            "jobs.deliveries",
        ),
    ),
    3: ("jobs.client",),
    4: (
        *(
            "jobs.worker",
            "jobs.claims",
            "jobs.plain",
            "jobs.registered",
            "jobs.lost",
            "jobs.horse",
            "jobs.execution",
            "jobs.stable",
            "jobs.horse_process",
            "jobs.launch",
            "jobs.zygote",
            "jobs.zygote_process",
            "jobs.settle",
            "jobs.batch",
            "jobs.runs",
            "jobs.supervisor",
            "jobs.clocks",
            "jobs.reporter",
        ),
        *("jobs.vitals", "jobs.health", "jobs.ticket", "jobs.watchdog", "jobs.scheduler", "jobs.pool"),
        *(
            "jobs.archivist",
            "jobs.listener",
            "jobs.lane",
            "jobs.handler_process",
            "jobs.alerts",
            "jobs.callbacks",
            "jobs.deliverer",
            "jobs.doctor",
            "jobs.shapes",
            "jobs.overview",
        ),
        "jobs",  # the face that users import; nothing of ours does
    ),
    5: ("jobs.cli", "web", "app", "examples"),
}
"""DESIGN, section 3. A package stands for all its modules, unless one has a floor of its own."""


def modules() -> dict[str, Path]:
    """Return every module of the product by its name below `ghostless`."""
    paths = [
        path for top in ("statemachine", "lua", "jobs", "web", "examples") for path in ROOT.joinpath(top).rglob("*.py")
    ]
    paths.append(ROOT / "app.py")
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {name: path for name, path in sorted(names.items()) if path.exists()}


MODULES = modules()


def floor(name: str) -> int | None:
    """Return the floor of a module, None when it has none."""
    by_name = {entry: number for number, entries in FLOORS.items() for entry in entries}
    if name in by_name:
        return by_name[name]
    packages = [package for package in by_name if package != "jobs" and name.startswith(f"{package}.")]
    return by_name[packages[0]] if packages else None


def imports(name: str) -> Iterator[str]:
    """Yield the modules of the product that a module imports."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            base = ".".join(part for part in parts if part)
            for alias in node.names:
                submodule = f"{base}.{alias.name}".lstrip(".")
                yield submodule if submodule in MODULES else base
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ghostless"):
            yield (node.module or "").removeprefix("ghostless").lstrip(".")


@pytest.mark.parametrize("name", MODULES)
def test_imports_only_point_down(name: str) -> None:
    """A module imports from its own floor and from those below it."""
    assert floor(name) is not None, f"{name} has no floor: give it one here"
    above = [other for other in imports(name) if other and (floor(other) is None or floor(other) > floor(name))]
    assert [] == above


@pytest.mark.parametrize("name", MODULES)
def test_no_import_stands_inside_a_function(name: str) -> None:
    """An import inside a function hides a circle, or a cost that comes as a surprise."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    hidden = [
        f"{node.lineno}: {ast.unparse(node)}"
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert [] == hidden


def test_imports_go_round_in_no_circle() -> None:
    """Taking away the modules that import nothing left, again and again, leaves none."""
    left = {name: {other for other in imports(name) if other in MODULES and other != name} for name in MODULES}
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    assert {} == left
