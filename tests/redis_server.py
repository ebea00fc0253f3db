"""A private Redis for tests: on a Unix socket and a free loopback port, with nothing shared and nothing left behind."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import die_with_the_tests, free_port
from redis import Redis
from redis.exceptions import ConnectionError, RedisError

HOW_TO_GET_IT = "no redis-server on PATH: `apt install redis-server` (7.0 or newer) or `valkey-server`"


def binary() -> str | None:
    """Return the path of the server's program, None when there is none."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    """One server process. It keeps its port and its folder over a restart; with `durable`, its data too."""

    def __init__(self, folder: Path, *, durable: bool = False, options: tuple[str, ...] = ()) -> None:
        self.folder, self.durable, self.options = folder, durable, options
        self.socket = folder / "redis.sock"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address over TCP, which processes of a test use."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """The address over the Unix socket, which is faster."""
        return f"unix://{self.socket}?db=0"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def start(self) -> "RedisServer":
        """Start the server and wait until it answers."""
        self._process = subprocess.Popen(
            [
                binary() or "redis-server",
                *("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket)),
                *("--dir", str(self.folder), "--logfile", str(self.folder / "redis.log"), "--save", ""),
                *("--appendonly", "yes" if self.durable else "no", "--appendfsync", "always"),
                *("--enable-debug-command", "local", "--maxmemory-policy", "noeviction"),
                *self.options,
            ],
            preexec_fn=die_with_the_tests,
        )
        self._wait_until_ready()
        return self

    def stop(self) -> None:
        """End the server the way an operator does."""
        self._end(signal="terminate")

    def kill(self) -> None:
        """End the server the way a crash does."""
        self._end(signal="kill")

    def restart(self) -> None:
        """End the server and start it again on the same port; only a durable one still has its data."""
        self.stop()
        self.start()

    def _end(self, signal: str) -> None:
        if self._process is not None:
            getattr(self._process, signal)()
            self._process.wait(timeout=20)
            self._process = None

    def _wait_until_ready(self, patience: float = 20.0) -> None:
        assert self._process is not None
        give_up_at = time.monotonic() + patience
        with Redis(port=self.port) as redis:
            while time.monotonic() < give_up_at:
                if self._process.poll() is not None:
                    break
                try:
                    redis.ping()
                    return
                except (ConnectionError, RedisError):
                    time.sleep(0.01)
        log = self.folder / "redis.log"
        raise RuntimeError(f"redis did not start: {log.read_text() if log.exists() else 'it wrote no log'}")


@contextmanager
def evicting(redis: Redis) -> Iterator[None]:
    """Let the server evict when its memory is short; a flush of the database would not undo it."""
    redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        yield
    finally:
        redis.config_set("maxmemory-policy", "noeviction")
