"""Two hundred workers without their processes: who hold tasks, renew the leases, and end the attempts by the store."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

from ghostless.jobs.client import Client
from ghostless.jobs.errors import RedisUnavailable, StaleAttempt
from ghostless.jobs.messages import Claim, Claimed, Ending, Held
from ghostless.statemachine import Event, Reason


def start_all(client: Client, task_type: str, ids: Sequence[str]) -> list[Held]:
    """Start the tasks, each on a worker of its own."""
    held: list[Held] = []
    for number, _ in enumerate(ids):
        reply = client.store.claim(Claim.new(f"holder{number}", ["default"], [task_type]))
        assert isinstance(reply, Claimed), reply
        held.append(reply.held)
    assert sorted(ids) == sorted(attempt.task_id for attempt in held)
    return held


def end_all(client: Client, held: Sequence[Held]) -> None:
    """End every attempt with a result."""
    for attempt in held:
        answer, _ = client.store.finish(attempt, Ending(Event.COMPLETE, Reason.POLICY, text="null"), "worker:holder")
        assert answer.word == "moved", answer


@contextmanager
def beating(client: Client, held: Sequence[Held]) -> Iterator[list[Held]]:
    """Renew the leases beat by beat until the block ends; the yielded list holds the attempts that were lost."""
    stop = threading.Event()
    lost: list[Held] = []
    thread = threading.Thread(target=_beat, args=(client, held, stop, lost))
    thread.start()
    try:
        yield lost
    finally:
        stop.set()
        thread.join()


def _beat(client: Client, held: Sequence[Held], stop: threading.Event, lost: list[Held]) -> None:
    with ThreadPoolExecutor(8) as workers:
        while not stop.wait(client.settings.beat):
            lost += filter(None, workers.map(partial(_renew, client), held))


def _renew(client: Client, held: Held) -> Held | None:
    """Return the attempt when it was lost. Without Redis the next beat tries again, as a worker does."""
    with suppress(RedisUnavailable):
        try:
            client.store.heartbeat(held)
        except StaleAttempt:
            return held
    return None
