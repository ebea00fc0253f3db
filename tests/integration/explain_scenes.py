"""What `explain` is asked about, each as it is made in Redis."""

import signal
from dataclasses import dataclass
from typing import Any

from ghostless.jobs.client import Client
from ghostless.jobs.failure import describe_error
from ghostless.jobs.horse_process import killed_by
from ghostless.jobs.messages import Claim
from ghostless.jobs.record import WorkerRecord
from ghostless.jobs.rq_keys import WORKER_RECORD
from ghostless.jobs.supervisor import crashed
from ghostless.statemachine import Event, Policy
from redis import Redis
from web_tools import SCHEMA, Hand, submitted

KILLED_AT = 4_000_000_000_000
"""When a worker says that it kills a process, ms."""


@dataclass
class World:
    """What a case is made with."""

    client: Client
    hand: Hand
    redis: Redis

    def submit(self, **wishes: object) -> str:
        """Submit a task."""
        return submitted(self.client, **wishes)

    def start(self, **wishes: object) -> str:
        """Submit a task and start it."""
        task_id = self.submit(**wishes)
        self.hand.start()
        return task_id

    def run(self, event: Event, message: str = "", **wishes: object) -> str:
        """Submit a task and run it to its end."""
        task_id = self.submit()
        self.hand.run(event=event, message=message, **wishes)
        return task_id

    def register(self, name: str, *types: str, **known: Any) -> None:
        """Let a worker listen on the queue that serves these types, with what else is known of it."""
        seconds, _ = self.redis.time()  # type: ignore[misc]
        beat = {"lease": 15_000, "beat_at": seconds * 1000, "horse_rss": 2**29, "health": "10.0.0.7:9000"}
        record = WorkerRecord(types=types, **beat | known)
        key = self.client.store.keys.rq_worker(name)
        self.redis.hset(key, mapping={"queues": "work", "state": "idle", WORKER_RECORD: record.to_json()})
        self.redis.sadd(self.client.store.keys.rq_workers, key)

    def sweep(self) -> None:
        """Let a watchdog be there, which judges leases from now on."""
        self.client.store.sweep("watchdog:test")
        self.redis.hset(self.client.store.keys.watchdog, "judge_from", 1)


def no_worker(world: World) -> str:
    """Nobody listens."""
    return world.submit()


def frozen_worker(world: World) -> str:
    """The only worker is frozen, or out of reach."""
    world.register("w1", "work", beat_at=world.client.reads.now() - 600_000)
    return world.submit()


def frozen_among_others(world: World) -> str:
    """The worker that serves the type is frozen, and another one knows other types."""
    world.register("w2", "other")
    return frozen_worker(world)


def no_worker_of_the_type(world: World) -> str:
    """A worker listens that knows other types."""
    world.register("w1", "other")
    return world.submit()


def queue_paused(world: World) -> str:
    """Somebody paused the queue."""
    task_id = world.submit()
    world.client.pause_queue("work")
    return task_id


def suspended(world: World) -> str:
    """`rq suspend` holds."""
    world.redis.set(world.client.store.keys.rq_suspended, 1)
    return world.submit()


def in_its_place(world: World) -> str:
    """Others are before it, and lately one took ten seconds."""
    world.register("w1", "work")
    key = world.client.store.keys.task(world.run(Event.COMPLETE))
    world.redis.hset(key, "started_at", int(world.redis.hget(key, "entered_at") or 0) - 10_000)
    for _ in range(2):
        world.submit(id=f"0{_}")
    return world.submit(id="1")


def ticket_lost(world: World) -> str:
    """rq's list was emptied, and nobody watches."""
    world.register("w1", "work")
    task_id = world.submit()
    world.redis.delete(world.client.store.keys.rq_queue("work"))
    return task_id


def scheduled(world: World) -> str:
    """Its time will come."""
    world.sweep()
    return world.submit(delay=60)


def scheduled_unwatched(world: World) -> str:
    """Its time will come, and nobody will see it."""
    return world.submit(delay=60)


def retry_waiting(world: World) -> str:
    """An attempt failed."""
    world.sweep()
    return world.run(Event.FAIL, raised())


def raised() -> str:
    """Return what a horse tells of an exception of its handler."""
    return describe_error(ValueError("no such model: xl"), "exception", "", retryable=True)["message"]


def blocked(world: World) -> str:
    """It depends on a task that a worker has."""
    return world.submit(depends_on=[world.start(id="first")])


def running(world: World) -> str:
    """A worker has it, and nothing was heard of its handler yet."""
    world.register("hand", "work")
    world.sweep()
    return world.start()


def running_and_heard_of(world: World) -> str:
    """A worker has it, and its handler reports."""
    world.register("hand", "work")
    world.sweep()
    task_id = world.submit()
    world.client.store.progress(world.hand.start().held, 0.25, "step 5")
    return task_id


def batched(world: World) -> str:
    """A worker started it together with another one, which it runs."""
    first, second = world.submit(), world.submit()
    world.client.store.claim(Claim("hand", ("work",), "aa", ("work",), together=(("work", 2),)))
    world.register("hand", "work", task_id=first, attempt=1)
    world.sweep()
    return second


def batched_and_begun(world: World) -> str:
    """A worker started it together with another one, and says that it runs it."""
    task_id = batched(world)
    world.register("hand", "work", task_id=task_id, attempt=1)
    return task_id


def unwritten(world: World) -> str:
    """A worker is done with it, and cannot write so."""
    task_id = world.start()
    world.register("hand", "work", unwritten={task_id: "retention: expected zset, got string"})
    return task_id


def asked_to_stop(world: World) -> str:
    """Its worker has asked it to stop, since it reported no progress."""
    task_id = world.start()
    known = {"task_id": task_id, "attempt": 1, "stopping": "no progress for 60 s", "kill_at": KILLED_AT}
    world.register("hand", "work", **known)
    return task_id


def lease_over(world: World) -> str:
    """Its worker fell silent, and the watchdog will look at it."""
    task_id = world.start()
    world.register("hand", "work", beat_at=world.client.reads.now() - 600_000)
    world.redis.delete(world.client.store.keys.heartbeat(task_id))
    world.sweep()
    return task_id


def lease_over_unwatched(world: World) -> str:
    """Its worker fell silent, and nobody will look at it."""
    task_id = world.start()
    world.redis.delete(world.client.store.keys.heartbeat(task_id))
    return task_id


def cancelling(world: World) -> str:
    """Its worker was asked to stop it."""
    world.register("hand", "work")
    task_id = world.start()
    world.sweep()
    world.client.cancel(task_id, actor="cli:ann", message="wrong prompt")
    return task_id


def paused(world: World) -> str:
    """A person paused it."""
    task_id = world.submit()
    world.client.pause(task_id, actor="cli:ann", message="lunch")
    return task_id


def redis_full(world: World) -> str:
    """Redis is at its memory limit."""
    task_id = world.submit()
    world.redis.config_set("maxmemory", 1)
    return task_id


def succeeded(world: World) -> str:
    """All is well."""
    return world.run(Event.COMPLETE)


def failed_by_exception(world: World) -> str:
    """Its handler raised what is not tried again."""
    return world.run(Event.FAIL, raised(), retryable=False)


def failed_by_memory(world: World) -> str:
    """The kernel killed it."""
    died = crashed("handler", killed_by(signal.SIGKILL, ran_out=True))
    return world.run(died.event, died.message, retryable=False)


def out_of_time(world: World) -> str:
    """It ran too long, too often."""
    return world.run(Event.TIMEOUT, "ran longer than allowed, 600 s: stopped when asked after 0.1 s", retryable=False)


def host_lost(world: World) -> str:
    """Its host vanished, and its losses are used up."""
    kind = {"queue": "work", "policy": Policy(max_losses=0).pack(), "schema": SCHEMA, "description": ""}
    world.client.store.publish_types({"work": kind})
    task_id = lease_over_unwatched(world)
    world.sweep()
    world.redis.zadd(world.client.store.keys.deadlines, {task_id: 0})
    world.sweep()
    return task_id


def cancelled(world: World) -> str:
    """A person did not want it any more."""
    task_id = world.submit()
    world.client.cancel(task_id, actor="cli:ann", message="wrong prompt")
    return task_id
