"""What several tests need: waiting without sleeping blindly, and looking at processes."""

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import psutil
from redis import Redis

T = TypeVar("T")


def eventually(check: Callable[[], T], seconds: float = 10.0) -> T:
    """Return what `check` returns once it raises no AssertionError any more; at the deadline raise its last one."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def expect(holds: object) -> None:
    """Raise AssertionError unless it holds: an `assert` that can stand in a lambda."""
    assert holds


def run_command(*arguments: str, environment: Mapping[str, str], cwd: Path | None = None) -> tuple[int, str]:
    """Run the command line as a process of its own; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "ghostless.jobs.cli", *arguments],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def heard(redis: Redis, meanwhile: Callable[[], object]) -> list[dict[str, Any]]:
    """Return what MONITOR tells of each command that Redis carries out meanwhile, those of scripts too."""
    with redis.monitor() as monitor:
        meanwhile()
        redis.echo("over")
        return list(takewhile(lambda told: told["command"] != "ECHO over", monitor.listen()))


@contextmanager
def noting_slow_commands(redis: Redis, slower_than: int) -> Generator[None]:
    """Let SLOWLOG note each command that takes longer (µs), and as many as there may be."""
    usual = {name: redis.config_get(name)[name] for name in ("slowlog-max-len", "slowlog-log-slower-than")}
    redis.config_set("slowlog-max-len", 10_000)
    redis.config_set("slowlog-log-slower-than", slower_than)
    yield
    for name, value in usual.items():
        redis.config_set(name, value)


_prctl = ctypes.CDLL(None).prctl


def die_with_the_tests() -> None:
    """Let a process die with the test run, also when that is killed; given to Popen as `preexec_fn`."""
    _prctl(1, signal.SIGKILL, 0, 0, 0)


def is_running(pid: int) -> bool:
    """Tell whether a process is there and has not ended; one that only waits to be reaped has."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
