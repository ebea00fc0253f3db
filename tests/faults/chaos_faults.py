"""Faults that a chaos run injects. Each returns how it is undone, when that is not by itself, and after how long."""

import contextlib
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
from fleet import horse_of
from ghostless.jobs.connection import REPLY_TIMEOUT
from redis import Redis
from redis.exceptions import RedisError
from redis_server import RedisServer

Undo = tuple[float, Callable[[], object]]
Process = subprocess.Popen[bytes]


@dataclass
class Target:
    """What faults are injected into."""

    server: RedisServer
    workers: dict[str, Process]
    watchdogs: dict[str, Process]
    chance: random.Random
    others: dict[str, Process] = field(default_factory=dict)  # by what they are
    hit: int = 0  # pid of the worker that the last fault was for

    def redis(self) -> Redis:
        """Return an operator's connection."""
        return Redis.from_url(self.server.url, protocol=2, socket_timeout=5)

    def worker(self) -> Process:
        """Return some worker."""
        chosen = self.chance.choice(list(self.workers.values()))
        self.hit = chosen.pid
        return chosen


def kill_worker(target: Target) -> None:
    """SIGKILL a worker."""
    target.worker().kill()


def kill_horse(target: Target) -> None:
    """SIGKILL the process that runs handlers."""
    with contextlib.suppress(StopIteration, psutil.Error):
        horse_of(target.worker()).kill()


def kill_watchdog(target: Target) -> None:
    """SIGKILL a watchdog."""
    target.chance.choice(list(target.watchdogs.values())).kill()


def kill_http_worker(target: Target) -> None:
    """SIGKILL a worker over HTTP."""
    target.hit = target.others["far"].pid
    target.others["far"].kill()


def kill_server(target: Target) -> None:
    """SIGKILL the web server, through which workers over HTTP reach their tasks."""
    target.others["server"].kill()


def kill_listener(target: Target) -> None:
    """SIGKILL a listener."""
    target.others["listener"].kill()


def freeze_server(target: Target) -> Undo:
    """SIGSTOP the web server."""
    server = target.others["server"]
    server.send_signal(signal.SIGSTOP)
    return 2.5, lambda: server.send_signal(signal.SIGCONT)


def freeze_listener(target: Target) -> Undo:
    """SIGSTOP a listener for longer than what it holds is its own."""
    listener = target.others["listener"]
    listener.send_signal(signal.SIGSTOP)
    return 2.5, lambda: listener.send_signal(signal.SIGCONT)


def redeploy(target: Target) -> None:
    """SIGTERM a worker."""
    target.worker().terminate()


def redeploy_in_haste(target: Target) -> Undo:
    """SIGTERM a worker, and SIGKILL it somewhere in its hand-back."""
    worker = target.worker()
    worker.terminate()
    return target.chance.uniform(0, 0.5), worker.kill


def freeze_worker(target: Target) -> Undo:
    """SIGSTOP a worker for longer than its lease."""
    worker = target.worker()
    worker.send_signal(signal.SIGSTOP)
    return 2.5, lambda: worker.send_signal(signal.SIGCONT)


def freeze_worker_for_good(target: Target) -> Undo:
    """SIGSTOP a worker, maybe in its wait for a task, which it is given and never begins, and SIGKILL it then."""
    worker = target.worker()
    worker.send_signal(signal.SIGSTOP)
    return 1.0, worker.kill


def freeze_watchdog(target: Target) -> Undo:
    """SIGSTOP a watchdog."""
    watchdog = target.chance.choice(list(target.watchdogs.values()))
    watchdog.send_signal(signal.SIGSTOP)
    return 2.5, lambda: watchdog.send_signal(signal.SIGCONT)


def freeze_worker_and_horse(target: Target) -> Undo:
    """SIGSTOP a worker and its horse for longer than the lease."""
    worker = target.worker()
    frozen = [psutil.Process(worker.pid)]
    with contextlib.suppress(psutil.Error):
        frozen += frozen[0].children(recursive=True)
    for process in frozen:
        with contextlib.suppress(psutil.Error):
            process.suspend()

    def thaw() -> None:
        for process in reversed(frozen):
            with contextlib.suppress(psutil.Error):
                process.resume()

    return 2.5, thaw


def cut(target: Target) -> None:
    """Drop every connection."""
    with target.redis() as redis:
        redis.client_kill_filter(_type="normal", skipme=True)


def cut_one(target: Target) -> None:
    """Drop one connection, whosever it is."""
    place = target.chance.random()  # drawn in any case, so that the same seed chooses the same faults after this one
    with target.redis() as redis:
        connections = sorted(int(each["id"]) for each in redis.client_list(_type="normal"))
        redis.client_kill_filter(_id=str(connections[int(place * len(connections))]))


def cut_hints(target: Target) -> None:
    """Drop every subscription."""
    with target.redis() as redis:
        redis.client_kill_filter(_type="pubsub")


def slow_writes(target: Target) -> None:
    """Let no write pass for a second."""
    with target.redis() as redis:
        redis.execute_command("CLIENT", "PAUSE", 1000, "WRITE")


def slow_redis(target: Target) -> None:
    """Let nothing pass for longer than a lease."""
    with target.redis() as redis:
        redis.execute_command("CLIENT", "PAUSE", 2000, "ALL")


def sleeping_redis(target: Target) -> None:
    """Let Redis sleep for longer than clients wait: they time out, and their commands run all the same."""

    def sleep() -> None:
        with Redis.from_url(target.server.url, socket_timeout=None) as redis, contextlib.suppress(RedisError):
            redis.execute_command("DEBUG", "SLEEP", REPLY_TIMEOUT + 0.5)

    threading.Thread(target=sleep, daemon=True).start()


def flush_scripts(target: Target) -> None:
    """Forget every script."""
    with target.redis() as redis:
        redis.script_flush()


def crash_redis(target: Target) -> None:
    """SIGKILL Redis, and start it again with what it had promised to keep."""
    target.server.kill()
    target.server.start()


def restart_redis(target: Target) -> None:
    """End Redis as an operator does, and start it again."""
    target.server.restart()


def read_only(target: Target) -> Undo:
    """Make Redis a replica of nobody for a second."""
    with target.redis() as redis:
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")

    def promote() -> None:
        with target.redis() as redis:
            redis.execute_command("REPLICAOF", "NO", "ONE")

    return 1.0, promote


def full(target: Target) -> Undo:
    """Let Redis be at its memory limit for three seconds."""
    with target.redis() as redis:
        redis.config_set("maxmemory", 1)

    def grow() -> None:
        with target.redis() as redis:
            redis.config_set("maxmemory", 0)

    return 3.0, grow


FAULTS: tuple[Callable[[Target], Undo | None], ...] = (
    *(kill_worker, kill_horse, kill_watchdog, redeploy, redeploy_in_haste),
    *(kill_http_worker, kill_server, kill_listener),
    *(freeze_worker, freeze_worker_for_good, freeze_worker_and_horse, freeze_watchdog, freeze_server, freeze_listener),
    *(cut, cut_one, cut_hints, slow_writes, slow_redis, sleeping_redis, flush_scripts),
    *(crash_redis, restart_redis, read_only, full),
)
