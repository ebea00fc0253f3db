"""What is installed elsewhere: the wheel, alone in a fresh environment; and the Makefile's first steps."""

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from redis import Redis
from redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]

NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".ghostless", "demo-output"
)


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """Run a command to its end, check its exit code, and return all that it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert code == done.returncode, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources so that the repository stays as it is."""
    source = shutil.copytree(ROOT, tmp_path_factory.mktemp("wheel") / "source", ignore=NOT_SOURCE)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=source)
    (built,) = (source / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; what it depends on is borrowed from this one."""
    home = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home)
    # A .pth file of a folder that was added by a .pth file is not read: this environment's own ghostless stays out.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    (packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)))
    return home / "bin"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Everything is below `ghostless/`: no generic `jobs` or `web` lands beside other people's packages."""
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {"ghostless", next(folder for folder in folders if folder.endswith(".dist-info"))} == folders
    assert not [name for name in names if "test" in name.lower()]


FOLDERS = ("benchmarks", "examples", "jobs", "lua", "statemachine", "web")
SOURCES = (
    *("app.py", "lua/*.lua", "web/static/**/*.*", "web/templates/*.html", "*/py.typed", "jobs/cli/py.typed"),
    *(f"{folder}/**/*.py" for folder in FOLDERS),
)


@pytest.mark.parametrize("pattern", SOURCES)
def test_the_wheel_holds_every_source(wheel: Path, pattern: str) -> None:
    """What works in the repository is in the wheel, the scripts included."""
    sources = {f"ghostless/{path.relative_to(ROOT)}" for path in ROOT.glob(pattern)}
    assert sources
    assert set() == sources - set(zipfile.ZipFile(wheel).namelist())


def test_the_installed_command_works(installed: Path, tmp_path: Path) -> None:
    """`ghostless --help` of the fresh environment runs the wheel's code and lists the verbs."""
    shown = run(installed / "ghostless", "--help", cwd=tmp_path)
    assert "Exit codes: 0 done" in shown
    place = run(installed / "python", "-c", "import ghostless.jobs.cli as cli; print(cli.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent)
    assert "stateDiagram" in run(installed / "ghostless", "diagram", cwd=tmp_path)


def test_an_installed_worker_runs_a_task(
    installed: Path, tmp_path: Path, redis: Redis, redis_server: RedisServer
) -> None:
    """From publish to submit to SUCCESS with the wheel alone, its scripts on a real Redis and its warm horse."""
    (tmp_path / "my_tasks.py").write_text(
        "from ghostless.jobs import Context, task\n"
        "@task('wheel.add')\n"
        "def add(ctx: Context, a: int, b: int = 1) -> int:\n"
        "    return a + b\n"
    )
    ghostless = (installed / "ghostless", "--redis-url", redis_server.url)
    run(*ghostless, "types", "publish", "--tasks", "my_tasks", cwd=tmp_path)
    run(*ghostless, "submit", "wheel.add", "--id", "sum", "-p", "a=2", cwd=tmp_path)
    run(*ghostless, "worker", "default", "--tasks", "my_tasks", "--burst", cwd=tmp_path)
    shown = json.loads(run(*ghostless, "status", "sum", "--json", cwd=tmp_path))
    assert ("SUCCESS", 3) == (shown["state"], shown["result"])


def test_the_installed_scripts_render(installed: Path, tmp_path: Path) -> None:
    """The Lua files are found in the wheel and completed with the table and the key names."""
    code = (
        "from ghostless.jobs.keys import Keys, script_names; from ghostless.lua import render_all;"
        "print(len(render_all(script_names(Keys()))))"
    )
    assert int(run(installed / "python", "-c", code, cwd=tmp_path)) > 10


def test_the_installed_web_application_starts(installed: Path, tmp_path: Path) -> None:
    """The Flask application is part of the wheel, and says that it is alive."""
    code = "from ghostless.app import create_app; print(create_app().test_client().get('/healthz').status_code)"
    assert "200" == run(installed / "python", "-c", code, cwd=tmp_path).splitlines()[-1]


# The Makefile


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, and a Python that only says its version."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def fake_python(folder: Path, body: str) -> str:
    """Put a program in the place of Python."""
    path = folder / "fake-python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


def test_make_explains_itself(checkout: Path) -> None:
    """`make` alone lists what can be made."""
    shown = run("make", "--no-print-directory", cwd=checkout)  # it may run under another make
    made = ["help", "demo", "dev", "test", "faults", "chaos", "bench", "lint", "clean"]
    assert made == [line.split()[1] for line in shown.splitlines()]


def test_make_refuses_an_old_python_in_one_line(checkout: Path) -> None:
    """And says how to name another one; nothing is made."""
    shown = run("make", "demo", fake_python(checkout, "exit 1"), cwd=checkout, code=2)
    assert "Python 3.11 or newer is needed; try: make PYTHON=python3.12" in shown
    assert not (checkout / ".venv").exists()


def test_make_says_when_venv_is_missing(checkout: Path) -> None:
    """Debian packs it apart."""
    body = 'case "$2" in *version_info*) exit 0;; *) exit 1;; esac'
    shown = run("make", "demo", fake_python(checkout, body), cwd=checkout, code=2)
    assert "apt install python3-venv" in shown


def test_make_installs_again_only_when_the_project_changed(checkout: Path) -> None:
    """A stamp remembers what was installed; a newer pyproject.toml outdates it."""
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "ghostless"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $@"\n')
        (programs / name).chmod(0o755)
    first, second = run("make", "demo", cwd=checkout), run("make", "demo", cwd=checkout)
    assert ("pip install" in first, "pip install" in second) == (True, False)
    assert "ghostless demo" in first
    assert "ghostless demo" in second
    stamp = (programs.parent / "installed-demo").stat().st_mtime
    os.utime(checkout / "pyproject.toml", (stamp + 10, stamp + 10))
    assert "--editable .[demo]" in run("make", "demo", cwd=checkout)
