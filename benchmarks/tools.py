"""What the benchmarks share: a Redis of their own, and a clock."""

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType

from ..jobs.settings import Settings

FSYNC = ("off", "everysec", "always")
"""When Redis writes its append-only file through to the disk; with "off" it keeps none."""


def durable(fsync: str) -> list[str]:
    """Return the options of a server that keeps such an append-only file."""
    return [] if fsync == "off" else ["--appendonly", "yes", "--appendfsync", fsync]


def _exit(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


@contextlib.contextmanager
def private_redis(*options: str) -> Generator[Settings]:
    """Run a server on a socket in a temporary folder; without options it keeps nothing, and no port hears it.

    From then on a SIGTERM ends this process as an exception does, so that nothing that it started is left.
    """
    signal.signal(signal.SIGTERM, _exit)
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder, *options]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            while not Path(socket).exists():
                if server.poll() is not None:
                    raise RuntimeError(f"{' '.join(command)} ended with exit code {server.returncode}")
                time.sleep(0.01)
            yield Settings(redis_url=f"unix://{socket}")
        finally:
            server.kill()
            server.wait()


def timed(call: Callable[[], object]) -> float:
    """Return how long a call takes, in µs."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e6
