"""Real workers that have HTTP only: killed, cut off, cancelled, paused and replaced, they lose no task."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from audit import audit
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.tokens import Scope
from ghostless.statemachine import Reason
from ghostless.web.limits import AT_ONCE
from helpers import eventually, expect, free_port
from web_tools import answers, opened

from .conftest import assert_clean, ended, entry_of, owner, story

EXAMPLE = Path(__file__).parents[2] / "examples" / "http_worker.py"
LEASE = 1.0
LINES = [f"line {number}" for number in range(10)]


class Site:
    """A server and workers that know nothing but its address."""

    def __init__(
        self, fleet: Fleet, client: Client, lease: float = LEASE, *, watches: bool = True, demands: bool = False
    ) -> None:
        self.fleet, self.client, self.port = fleet, client, free_port()
        self.options = () if watches else ("--no-watchdog",)
        self.url = f"http://127.0.0.1:{self.port}"
        self.headers: dict[str, str] = {}
        fleet.environment |= {"GHOSTLESS_BEAT": "0.3", "GHOSTLESS_LEASE": str(lease)}
        if demands:
            token, _ = client.tokens.add("far", [Scope.WORK])
            self.headers = {"Authorization": f"Bearer {token}"}
            fleet.environment |= {"GHOSTLESS_REQUIRE_TOKENS": "1", "GHOSTLESS_TOKEN": token}
        self.server = self.serve()

    def serve(self) -> "subprocess.Popen[bytes]":
        """Start the server."""
        server = self.fleet.start("serve", "--port", str(self.port), *self.options)
        eventually(lambda: expect(answers(self.port)), seconds=30)
        return server

    def workers(self, *names: str) -> None:
        """Start workers; return when their type is known."""
        for name in names:
            self.fleet.spawn([sys.executable, str(EXAMPLE), self.url, "text", name])
        eventually(lambda: expect("text.shout" in self.client.types()), seconds=20)
        self.publish()

    def publish(self) -> None:
        """Make the type known as the test wants it: what fails is soon tried again."""
        kind = {"queue": "text", "schema": {}, "backoff": 0.1}
        requests.put(f"{self.url}/api/types/text.shout", json=kind, headers=self.headers, timeout=30).raise_for_status()

    def submit(self, pause: float = 0.2, **wishes: Any) -> str:
        """Submit a task of the example's type."""
        return self.client.submit("text.shout", {"lines": LINES, "pause": pause}, **wishes).task_id

    def running(self, task_id: str) -> str:
        """Return the name of the worker that has begun with a task."""
        eventually(lambda: expect(self.client.get(task_id).progress), seconds=20)
        return self.client.get(task_id).worker_id or ""

    def post(self, path: str, body: dict[str, Any]) -> requests.Response:
        """Send something."""
        return requests.post(f"{self.url}/api/{path}", json=body, headers=self.headers, timeout=60)

    def refused(self, path: str, body: dict[str, Any]) -> tuple[int, str]:
        """Send something that is refused; return with which status, and why."""
        answer = self.post(path, body)
        return answer.status_code, answer.json()["type"]


@pytest.fixture
def demands() -> bool:
    """Whether the server demands a token, and the workers have one."""
    return False


@pytest.fixture
def site(fleet: Fleet, client: Client, demands: bool) -> Site:
    """A server on the test's Redis."""
    return Site(fleet, client, demands=demands)


@pytest.mark.parametrize("demands", [True], ids=["with a token"])
def test_a_killed_worker_loses_nothing(site: Site, client: Client, fleet: Fleet) -> None:
    """Its task is found when the lease is over and goes on elsewhere, from its checkpoint; the history says why."""
    site.workers("far1", "far2")
    task_id = site.submit()
    killed = site.running(task_id)
    owner(client, fleet, task_id).kill()
    task = ended(client, task_id, "SUCCESS", seconds=40)
    assert [line.upper() for line in LINES] == task.result
    assert ["SUBMIT", "START", "TIMEOUT", "RETRY", "RELEASE", "START", "COMPLETE"] == story(client, task_id)
    lost = entry_of(client, task_id, "TIMEOUT")
    assert (Reason.HEARTBEAT_LOST, True) == (lost.reason, killed in lost.message)
    assert entry_of(client, task_id, "COMPLETE").actor == f"worker:{({'far1', 'far2'} - {killed}).pop()}"
    assert_clean(client, fleet, task_id)


def test_people_are_heard_and_deploys_cost_nothing(site: Site, client: Client, fleet: Fleet) -> None:
    """Cancel, pause and resume, and a worker that is told to end: each is confirmed by the worker itself."""
    site.workers("far1", "far2")
    cancelled, paused = site.submit(), site.submit()
    site.running(cancelled)
    client.cancel(cancelled)
    ended(client, cancelled, "CANCELLED")
    assert "STOPPED" == story(client, cancelled)[-1]
    assert f"worker:{entry_of(client, cancelled, 'START').actor[7:]}" == entry_of(client, cancelled, "STOPPED").actor
    site.running(paused)
    client.pause(paused)
    ended(client, paused, "PAUSED")
    client.resume(paused)
    first = site.running(eventually(lambda: _started_again(client, paused, 2)))
    owner(client, fleet, paused).terminate()
    task = ended(client, paused, "SUCCESS", seconds=40)
    assert [line.upper() for line in LINES] == task.result
    suspended = entry_of(client, paused, "SUSPEND")
    assert (Reason.SHUTDOWN, f"worker:{first}") == (suspended.reason, suspended.actor)
    assert (3, 0, 0) == (task.attempt, task.losses, task.failures)
    assert_clean(client, fleet, cancelled, paused)


def _started_again(client: Client, task_id: str, attempt: int) -> str:
    assert attempt == client.get(task_id).attempt
    return task_id


def _run_example(*arguments: str) -> str:
    """Run the example until it ends; return what it said."""
    command = [sys.executable, str(EXAMPLE), *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert done.returncode == 1
    return done.stderr


def test_the_example_says_what_it_waits_for(site: Site, client: Client, fleet: Fleet) -> None:
    """Too little said, nobody there, a refusal in the server's words, and a task that runs: never silence."""
    assert "usage: " in _run_example()
    fleet.spawn([sys.executable, str(EXAMPLE), f"http://127.0.0.1:{free_port()}", "text"])
    eventually(lambda: expect("no answer yet to PUT" in fleet.logs()))
    refused = _run_example(site.url, "no such queue")
    assert "PUT " in refused
    assert " 422: " in refused
    assert "Traceback" not in refused
    site.publish()
    task_id = site.submit(pause=0)
    fleet.spawn([sys.executable, str(EXAMPLE), site.url, "text", "far1"])
    for what in ("begins", "is over"):
        eventually(lambda what=what: expect(f"attempt 1 of task {task_id} {what}" in fleet.logs()))


def test_a_server_that_is_killed_interrupts_nobody(client: Client, fleet: Fleet) -> None:
    """Killed in mid-task, it comes back within the lease: the same attempt goes on, whatever was lost of its calls."""
    site = Site(fleet, client, lease=20)
    site.workers("far1")
    task_id = site.submit()
    site.running(task_id)
    family = psutil.Process(site.server.pid).children()
    site.server.kill()
    for process in family:
        process.kill()  # they would notice only later
    site.server.wait(timeout=20)
    site.serve()
    task = ended(client, task_id, "SUCCESS", seconds=40)
    assert ([line.upper() for line in LINES], 1) == (task.result, task.attempt)
    assert_clean(client, fleet, task_id)


def test_a_deploy_under_open_streams_takes_no_attempt_away(client: Client, fleet: Fleet) -> None:
    """The old server drains before the next one answers, and the watchdog elsewhere sweeps on: no loss is used up."""
    site = Site(fleet, client, lease=3, watches=False)
    fleet.start("watchdog")
    site.workers("far1")
    task_id = site.submit(pause=0.8)
    site.running(task_id)
    streams = [opened(f"{site.url}/api/tasks/{task_id}/events") for _ in range(60)]
    site.server.terminate()
    site.server.wait(timeout=30)
    for stream in streams:
        stream.close()
    site.serve()
    task = ended(client, task_id, "SUCCESS", seconds=60)
    assert (1, 0, ["SUBMIT", "START", "COMPLETE"]) == (task.attempt, task.losses, story(client, task_id))
    assert_clean(client, fleet, task_id)


def test_a_worker_publishes_again_what_redis_forgot(site: Site, client: Client, fleet: Fleet) -> None:
    """Emptied under a worker that waits, Redis knows the type again at its next claim."""
    site.workers("far1")
    redis, live = client.store.redis, client.store.keys.live
    eventually(lambda: expect(redis.pubsub_numsub(live)[0][1]), seconds=20)  # it waits, and the server listens for it
    redis.flushdb()
    eventually(lambda: expect("text.shout" in client.types()), seconds=20)
    task_id = site.submit(pause=0)
    ended(client, task_id, "SUCCESS")
    assert_clean(client, fleet, task_id)


def test_of_two_workers_with_one_task_the_later_one_holds_it(site: Site, client: Client, fleet: Fleet) -> None:
    """A worker that was frozen for longer than its lease writes nothing any more, and leaves the task alone."""
    site.workers("far1", "far2")
    task_id = site.submit(pause=0.3)
    first = site.running(task_id)
    frozen = owner(client, fleet, task_id)
    frozen.send_signal(signal.SIGSTOP)
    token = client.store.redis.hget(client.store.keys.task(task_id), "token")
    eventually(lambda: expect(client.get(task_id).worker_id not in (first, None)), seconds=30)
    # What it may have been about to say when it was frozen; by itself it may hear first that the task is gone.
    late = {"worker": first, "attempt": 1, "token": token, "fraction": 0.9}
    assert (409, "urn:ghostless:stale-attempt") == site.refused(f"tasks/{task_id}/progress", late)
    frozen.send_signal(signal.SIGCONT)
    task = ended(client, task_id, "SUCCESS", seconds=40)
    assert ([line.upper() for line in LINES], 2) == (task.result, task.attempt)
    assert entry_of(client, task_id, "COMPLETE").actor != f"worker:{first}"
    assert client.reads.ledger()["stale_writes"] >= 1
    # The frozen one is of use again.
    others = [site.submit(pause=0) for _ in range(6)]
    for other in others:
        ended(client, other, "SUCCESS")
    assert_clean(client, fleet, task_id, *others)


def test_two_hundred_waiting_workers(client: Client, fleet: Fleet) -> None:
    """Under gevent they cost the server no thread each and Redis no connection each; each task is given once."""
    site = Site(fleet, client, lease=60)  # these workers do not beat
    site.publish()
    server = psutil.Process(psutil.Process(site.server.pid).children()[0].pid)
    connections, threads = len(client.store.redis.client_list()), server.num_threads()

    def claim(number: int) -> dict[str, Any]:
        answer = site.post("queues/crowd/claim?wait=50", {"worker": f"crowd{number}", "types": ["text.shout"]})
        assert 200 == answer.status_code, answer.text
        return answer.json()

    with ThreadPoolExecutor(200) as pool:
        claims = [pool.submit(claim, number) for number in range(200)]
        eventually(lambda: expect(200 == sum("crowd" in worker.queues for worker in client.workers())), seconds=30)
        time.sleep(1)
        assert not any(claim.done() for claim in claims)
        assert len(client.store.redis.client_list()) - connections <= 3 + AT_ONCE
        assert server.num_threads() - threads <= 2
        ids = {client.submit("text.shout", {"lines": []}, queue="crowd").task_id for _ in range(200)}
        given = [claim.result(timeout=60) for claim in claims]
    assert ids == {task["id"] for task in given}
    with ThreadPoolExecutor(20) as pool:
        bodies = {task["id"]: {name: task[name] for name in ("worker", "attempt", "token")} for task in given}
        done = list(pool.map(lambda one: site.post(f"tasks/{one}/complete", bodies[one] | {"result": []}), ids))
    assert {200} == {answer.status_code for answer in done}
    assert [] == audit(client.store.redis, client.store.keys, ids)
