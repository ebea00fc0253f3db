"""The servers whose events are measured: the real one as it starts by default, and the usual design."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from ..jobs.cli.ports import free_port

PATIENCE = 20.0
"""Seconds that a server may take to start."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server with one worker process."""

    port: int
    worker: psutil.Process

    def processor_time(self) -> float:
        """Return the seconds of CPU that the worker used up to now."""
        times = self.worker.cpu_times()
        return times.user + times.system

    def memory(self) -> float:
        """Return the KB that the worker occupies."""
        return self.worker.memory_info().rss / 1024

    def metric(self, name: str) -> float:
        """Return one of the numbers that it counts. Raises OSError, StopIteration."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@contextmanager
def real(redis_url: str) -> Generator[Server]:
    """Run `ghostless serve`, which must let all clients come from one address."""
    port = free_port(0)
    command = [sys.executable, "-m", "ghostless.jobs.cli", "serve", "--port", str(port)]
    with _running(command, port, "/readyz", redis_url, {"GHOSTLESS_STREAMS_PER_ADDRESS": "10000"}) as server:
        yield server


@contextmanager
def naive(redis_url: str) -> Generator[Server]:
    """Run a server with one Redis connection for each client."""
    port = free_port(0)
    command = [sys.executable, "-m", "gunicorn", "--worker-class", "gevent", "--worker-connections", "10000"]
    command += ["--no-control-socket", "--bind", f"127.0.0.1:{port}", "ghostless.benchmarks.naive_events:create_app()"]
    with _running(command, port, "/", redis_url, {}) as server:
        yield server


@contextmanager
def _running(
    command: Sequence[str], port: int, probe: str, redis_url: str, environment: Mapping[str, str]
) -> Generator[Server]:
    process = subprocess.Popen(
        command,
        env={**os.environ, "GHOSTLESS_REDIS_URL": redis_url, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, probe)
        (worker,) = psutil.Process(process.pid).children()
        yield Server(port, worker)
    finally:
        process.send_signal(2)  # no drain
        process.wait()


def _wait_for(port: int, probe: str) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{probe}", timeout=PATIENCE).close()
            return
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
