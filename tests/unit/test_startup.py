"""What is imported when the product starts: only what is needed. `python -m ghostless.benchmarks.startup` times it."""

import subprocess
import sys

import pytest

NEVER = {"flask", "gunicorn", "gevent", "numpy", "PIL", "rich", "prometheus_client", "requests", "torch"}
SLOW = {"redis", "rq", "pydantic", "jsonschema", "psutil", "asyncio"}


@pytest.mark.parametrize(
    ("code", "unneeded"),
    [
        ("import ghostless.jobs", NEVER | SLOW),
        ("import ghostless.jobs.cli", NEVER | SLOW),
        ("from ghostless.jobs import task", NEVER | {"redis", "rq", "jsonschema"}),
        ("import ghostless.jobs.horse", NEVER | {"redis", "rq", "jsonschema"}),
        ("import ghostless.jobs.cli.worker", NEVER | {"jsonschema"}),
        ("from ghostless.jobs import Client", NEVER),
        ("import ghostless.web.hub", {"gevent", "gunicorn", "flask"}),
    ],
)
def test_what_is_not_needed_is_not_imported(code: str, unneeded: set[str]) -> None:
    """A client needs no server, a horse no Redis; the package's names and `ghostless --help` need nothing slow."""
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set() == unneeded & set(done.stdout.split())


def test_every_name_of_the_package_is_there() -> None:
    """Those too that are loaded when they are first asked for."""
    code = "from ghostless.jobs import *; import ghostless.jobs as jobs; print(*(set(jobs.__all__) - set(dir())))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "" == done.stdout.strip()
