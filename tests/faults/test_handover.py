"""Between two places: what a stopped worker was handed, and what a person cancels meanwhile (B01, B29, B30)."""

import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, ended, entry_of, publish, rq_worker, running, story
from faults.sizes import CANCELS
from fleet import Fleet
from ghostless.app import create_app
from ghostless.jobs.client import Client
from ghostless.jobs.watchdog import Watchdog
from helpers import eventually, expect

pytestmark = pytest.mark.slow

Process = subprocess.Popen[bytes]
Story = tuple[str, ...]
Answers = dict[str, tuple[int, str]]
SEED, WORKERS, ROUNDS = 11, 3, 20

TRUE_ANSWERS: dict[Story, set[tuple[int, str]]] = {
    ("SUBMIT", "CANCEL"): {(200, "CANCELLED")},
    ("SUBMIT", "START", "CANCEL", "STOPPED"): {(202, "CANCELLING"), (200, "CANCELLED")},
    ("SUBMIT", "START", "CANCEL", "COMPLETE"): {(202, "CANCELLING"), (200, "CANCELLED")},
    ("SUBMIT", "START", "COMPLETE"): {(200, "SUCCESS")},
}
"""What may be answered to who cancels a task, by what became of it. An answer tells the state that it is in by then."""

ONE, THREE, STOCK = ("one",), ("two", "three", "four"), ("five", "six", "seven")
"""The queues of a worker that has one, of one that has three, and of rq's own worker, which pops from three."""


def parked(client: Client, fleet: Fleet) -> list[Process]:
    """Return three idle workers that were stopped while they wait in Redis."""
    publish(fleet)
    idle = [
        fleet.worker(*ONE, name="idle1", tasks="lifecycle"),
        fleet.worker(*THREE, name="idle3", tasks="lifecycle"),
        rq_worker(fleet, queues=STOCK),
    ]
    eventually(lambda: assert_parked(client, len(idle)), seconds=20)
    for process in idle:
        process.send_signal(signal.SIGSTOP)
    return idle


def assert_parked(client: Client, number: int) -> None:
    """Check that so many wait in a blocking pop."""
    waiting = [entry for entry in client.store.redis.client_list() if entry["cmd"] == "blpop"]
    assert len(waiting) == number


def submitted(client: Client, trace: Path) -> list[str]:
    """Submit a task to the last queue of each worker; return their ids."""
    return [
        client.submit("life.once", {"trace": str(trace)}, queue=queues[-1]).task_id for queues in (ONE, THREE, STOCK)
    ]


def test_popped_and_never_started(client: Client, fleet: Fleet, trace: Path) -> None:
    """Workers die with what Redis had handed them: another one runs the tasks, each once, and none waits for a clock.

    Of ours only a hint is lost: no sweep is needed. rq's worker takes the ticket with it, which may be on its way for
    two beats of Redis' time; the first sweep after that makes a new one, and says why.
    """
    idle = parked(client, fleet)
    ids = submitted(client, trace)
    for process in idle:
        process.kill()
    fleet.worker(*ONE, *THREE, *STOCK, name="heir", tasks="lifecycle")
    for task_id in ids[:-1]:
        assert ended(client, task_id, "SUCCESS").attempt == 1
    assert client.reads.watchdog() is None, "nobody swept"
    taken, watchdog = ids[-1], Watchdog(client.store)
    watchdog.sweep_all()
    assert story(client, taken) == ["SUBMIT"]
    given_up_at = client.reads.now() + 1000 * client.settings.hand_over
    eventually(lambda: expect(client.reads.now() >= given_up_at))
    watchdog.sweep_all()
    assert "ticket was gone" in entry_of(client, taken, "REQUEUE").message
    assert ended(client, taken, "SUCCESS").attempt == 1
    told = ["SUBMIT", "START", "COMPLETE"]
    assert [story(client, task_id) for task_id in ids] == [told, told, ["SUBMIT", "REQUEUE", *told[1:]]]
    assert sorted(trace.read_text().split()) == sorted(ids)
    assert_clean(client, fleet, *ids)


def test_cancelled_between_submit_and_start(client: Client, fleet: Fleet, trace: Path) -> None:
    """Workers wake up with tasks that were cancelled meanwhile: these do not run, and each takes the next."""
    idle = parked(client, fleet)
    cancelled = submitted(client, trace)
    assert [client.cancel(task_id).state for task_id in cancelled] == ["CANCELLED"] * 3
    for process in idle:
        process.send_signal(signal.SIGCONT)
    following = submitted(client, trace)
    for task_id in following:
        ended(client, task_id, "SUCCESS")
    assert [story(client, task_id) for task_id in cancelled] == [["SUBMIT", "CANCEL"]] * 3
    assert sorted(trace.read_text().split()) == sorted(following)
    assert_clean(client, fleet, *cancelled, *following)


def cancelled(
    client: Client,
    trace: Path,
    seconds: float,
    moments: Sequence[float],
    *,
    at_a_time: int = WORKERS,
    with_dependents: bool = False,
) -> Answers:
    """Submit a task that takes so long for each moment, and cancel it then over HTTP; return what was answered.

    So many at a time: as many as there are workers find one that is idle, of more some wait.
    """
    web, params = create_app(client=client), {"trace": str(trace), "seconds": seconds}

    def cancel_one(moment: float) -> tuple[str, tuple[int, str]]:
        task_id = client.submit("life.span", params).task_id
        begun = time.monotonic()
        if with_dependents:
            client.submit("life.once", {"trace": f"{trace}-next"}, id=f"{task_id}-next", depends_on=[task_id])
        time.sleep(max(0.0, begun + moment - time.monotonic()))  # the race itself
        answer = web.test_client().post(f"/api/tasks/{task_id}/cancel")
        return task_id, (answer.status_code, answer.get_json()["state"])

    with ThreadPoolExecutor(at_a_time) as pool:
        return dict(pool.map(cancel_one, moments))


def until_won(play: Callable[[int], Answers], ways: Callable[[Answers], set[Story]]) -> Answers:
    """Play rounds until either side has won each race; return what was answered.

    How many a round wins depends on the machine: a fast one starts most tasks before anybody can cancel them.
    """
    answers: Answers = {}
    for number in range(1, ROUNDS + 1):
        answers |= play(number)
        if ways(answers) == TRUE_ANSWERS.keys():
            return answers
    raise AssertionError(f"only these races were won: {ways(answers)}")


def told_stories(client: Client) -> dict[str, Story]:
    """Return the events of each task, once all have ended."""
    eventually(lambda: expect(client.reads.ledger()["live"] == 0), seconds=30)
    told: dict[str, Story] = defaultdict(tuple)
    for _, entry in client.store.redis.xrange(client.store.keys.history):
        told[entry["task"]] += (entry["event"],)
    return told


def test_cancelled_at_any_moment(serving: Callable[..., None], client: Client, fleet: Fleet, trace: Path) -> None:
    """It never ran, was stopped, or had ended; the person was told which, and only SUCCESS releases a dependent.

    First from just submitted to just ended, then from 20 ms before the end to 20 ms after it, with a dependent each.
    """
    serving(workers=WORKERS)
    chance = random.Random(SEED)

    def moments(latest: float) -> list[float]:
        return [chance.uniform(0, latest) for _ in range(CANCELS)]

    def ways(answers: Answers) -> set[Story]:
        told = told_stories(client)
        return {told[task_id] for task_id in answers}

    def early_round(number: int) -> Answers:
        return cancelled(client, trace, 0.01, moments(0.03), at_a_time=number * WORKERS)

    def late_round(number: int) -> Answers:
        return cancelled(client, trace, 0.02, moments(0.04 * number), at_a_time=number * WORKERS, with_dependents=True)

    early = until_won(early_round, ways)
    late = until_won(late_round, ways)
    answers, told = early | late, told_stories(client)
    assert [told[task_id] for task_id, answer in answers.items() if answer not in TRUE_ANSWERS[told[task_id]]] == []
    assert {line.split()[0] for line in running(trace)} <= {task_id for task_id in answers if "START" in told[task_id]}
    released = {task_id for task_id in late if told[task_id] == ("SUBMIT", "START", "COMPLETE")}
    assert sorted(running(Path(f"{trace}-next"))) == sorted(f"{task_id}-next" for task_id in released)
    assert {told[f"{task_id}-next"] for task_id in late.keys() - released} == {("SUBMIT", "CANCEL")}
    assert_clean(client, fleet, *told)
