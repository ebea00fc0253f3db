"""The processes that keep others going, a pool of workers and a watchdog, to be walked step by step."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from faults import step_scenes as before
from faults.step_scenes import end
from faults.steps import NEVER, Operation
from faults.victims import Victim, command_line
from faults.world import QUEUE, TYPE, World
from ghostless.jobs import pool
from ghostless.jobs.cli import watchdog, worker  # noqa: F401  imported once for all processes
from ghostless.jobs.connection import connect
from ghostless.jobs.messages import Claim, Claimed
from ghostless.jobs.presence import client_name
from ghostless.jobs.tether import stop_with_parent
from ghostless.statemachine import Event, Reason, State
from helpers import is_running

SUCCESS = (State.SUCCESS,)

SERVED = ("t1", "t2", "t3", "t5")
"""Tasks that a watchdog gives back to their queue, each by another duty or in another round."""


# What is done


def keep_workers(world: World) -> None:
    """Keep two workers until their queue is empty. The workers do not pass the proxy."""
    straight = replace(world, url=world.straight_url)
    pool.connect = lambda settings: connect(replace(settings, redis_url=world.url))
    os.posix_spawn = lambda _path, command, *_, **__: _start(straight, dict(pairwise(command)))  # type: ignore[assignment]
    os.environ.update(straight.environment)
    command_line("worker", QUEUE, "--tasks", "faults.step_tasks", "--name", world.worker, "-n", "2", "--burst")


def _start(world: World, words: Mapping[str, str]) -> int:
    """Fork a worker as the pool starts one, since so many interpreters would take long."""
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            stop_with_parent(int(words["--parent"]))
            _work_once(world, words["--name"], words["--incarnation"])
        finally:
            os._exit(0)
    return pid


def _work_once(world: World, name: str, incarnation: str) -> None:
    """Register, run a task until told to stop if there is one, give it back, and leave, as a worker does."""
    store, key = world.client.store, world.client.store.keys.rq_worker(name)
    store.redis.client_setname(client_name(name, incarnation))
    store.redis.hset(key, mapping={"incarnation": incarnation, "queues": QUEUE, "pid": os.getpid()})
    store.redis.sadd(store.keys.rq_workers, key)
    claimed = store.claim(Claim(name, (QUEUE,), incarnation, (TYPE,)))
    if isinstance(claimed, Claimed):
        world.note(claimed)
        store.stage(claimed.held, "worker", "begun")
        signal.sigwait({signal.SIGTERM})
        end(world, claimed, Event.SUSPEND, Reason.SHUTDOWN)
    store.redis.srem(store.keys.rq_workers, key)
    store.redis.delete(key)


def watch(_world: World) -> None:
    """Sweep until told to stop."""
    command_line("watchdog")


# What happens meanwhile


def kill_the_busy_one(world: World, _victim: Victim) -> None:
    """Send SIGKILL to the worker of the first task, once its handler has reported."""
    task = world.client.get("t1")
    if task.state is State.PROCESSING and any(entry.event == Event.STAGE for entry in world.client.history("t1")):
        redis, keys = world.client.store.redis, world.client.store.keys
        pid = int(redis.hget(keys.rq_worker(task.worker_id or ""), "pid") or 0)
        with suppress(ProcessLookupError):  # its pool has buried it, and tells so next
            if pid and is_running(pid):
                os.kill(pid, signal.SIGKILL)


def stop_when_all_is_done(world: World, victim: Victim) -> None:
    """Send SIGTERM once the watchdog has moved, of all that stood still, whatever it can."""
    if world.states() == dict.fromkeys(SERVED, State.PENDING) and len(_tickets(world)) == len(SERVED):
        victim.tell_to_stop()


def _tickets(world: World) -> list[str]:
    redis, keys = world.client.store.redis, world.client.store.keys
    return redis.lrange(keys.rq_queue(QUEUE), 0, -1)


KEEPERS = (
    Operation(keep_workers, before.a_waiting_task, {"t1": SUCCESS}, meddle=kill_the_busy_one, is_costly=True),
    Operation(
        watch,
        before.work_for_several_rounds,
        {**dict.fromkeys(SERVED, SUCCESS), "t4": (NEVER,)},
        repeats=True,
        meddle=stop_when_all_is_done,
        is_costly=True,
        counts_from=b"EVALSHA",
    ),
)
