"""A worker's health: what makes it red, and the endpoint that tells."""

import http.client
import json
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ghostless.jobs.health import MOST_CLIENTS, HealthServer, PortTaken, own_address
from ghostless.jobs.launch import LOADING_LIMIT
from ghostless.jobs.record import GpuMemory, WorkerRecord
from ghostless.jobs.settings import Settings
from ghostless.jobs.supervisor import Shutdown
from ghostless.jobs.vitals import ROUND, Vitals
from helpers import eventually
from redis import Redis

REPORT: dict[str, Any] = {"healthy": True, "reasons": []}


@pytest.fixture(autouse=True)
def report() -> None:
    """Each test begins with a worker that is well."""
    REPORT.clear()
    REPORT.update(healthy=True, reasons=[])


@pytest.fixture(scope="module")
def server() -> Iterator[HealthServer]:
    """An endpoint that says what stands in REPORT."""
    running = HealthServer("127.0.0.1", 0, lambda: REPORT)
    yield running
    running.close()


def ask(server: HealthServer, path: str = "/health", method: str = "GET") -> tuple[int, bytes]:
    """Send one request; return the status and the body."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize(("healthy", "status"), [(True, 200), (False, 503)])
def test_the_status_tells_the_health(server: HealthServer, healthy: bool, status: int) -> None:
    """200 or 503, with the report as JSON; HEAD has the status alone."""
    REPORT.update(healthy=healthy)
    answered, body = ask(server)
    assert (status, REPORT) == (answered, json.loads(body))
    assert (status, b"") == ask(server, method="HEAD")


@pytest.mark.parametrize("path", ["/", "/healthz", "/health/", "/../health"])
def test_nothing_else_is_served(server: HealthServer, path: str) -> None:
    """It is no file server."""
    assert 404 == ask(server, path)[0]
    assert 501 == ask(server, method="POST")[0]


def test_slow_clients_hold_nobody_up(server: HealthServer) -> None:
    """Clients that send nothing get a thread each, up to a bound; further ones are closed, until one has left."""
    idle = [socket.create_connection(server.server_address[:2]) for _ in range(MOST_CLIENTS - 1)]
    assert 200 == ask(server)[0]
    idle.append(socket.create_connection(server.server_address[:2]))
    with socket.create_connection(server.server_address[:2], timeout=10) as turned_away:
        assert b"" == turned_away.recv(1)
    for connection in idle:
        connection.close()
    eventually(lambda: assert_answers(server))


def test_a_client_that_never_comes_to_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would begin the patience anew; the whole request has it once."""
    monkeypatch.setattr("ghostless.jobs.health.PATIENCE", 0.3)
    running = HealthServer("127.0.0.1", 0, lambda: REPORT)
    with socket.create_connection(running.server_address[:2], timeout=10) as slow:
        eventually(lambda: assert_cut_off(slow))
    running.close()


def assert_cut_off(slow: socket.socket) -> None:
    """Send one more byte, and check that nobody takes it any more."""
    try:
        slow.sendall(b"G")
    except OSError:
        return
    time.sleep(0.05)
    raise AssertionError("it is still listened to")


def assert_answers(server: HealthServer) -> None:
    """Check that the endpoint has a thread left."""
    try:
        assert 200 == ask(server)[0]
    except OSError as error:
        raise AssertionError(error) from error


def test_a_port_that_is_taken_is_told(server: HealthServer) -> None:
    """By address and port, with what to do."""
    port = server.server_address[1]
    with pytest.raises(PortTaken, match=f"--health-port: 127.0.0.1 port {port} cannot .*choose another port"):
        HealthServer("127.0.0.1", port, lambda: REPORT)


def test_who_has_the_port_is_told(server: HealthServer) -> None:
    """The workers of the pool before, say, which still drain."""
    port = server.server_address[1]
    REPORT.update(healthy=True, worker="w-1", state="draining", task="t1")
    with pytest.raises(
        PortTaken, match=r"since the worker w-1 does \(200 draining with t1\); wait until that has ended"
    ):
        HealthServer("127.0.0.1", port, lambda: REPORT)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379/0", "redis://localhost:6379/0", "unix:///run/redis.sock"])
def test_with_a_redis_on_this_machine_only_this_machine_may_ask(url: str) -> None:
    """The endpoint is bound where those are who reach the same Redis."""
    assert "127.0.0.1" == own_address(Redis.from_url(url))


def test_with_a_redis_elsewhere_the_endpoint_is_where_that_is_reached_from() -> None:
    """Here Redis stands at an address of this machine that others can reach, so that is the way to it."""
    addresses = [entry.address for entries in psutil.net_if_addrs().values() for entry in entries if entry.family == 2]
    outside = [address for address in addresses if not address.startswith("127.")]
    if not outside:
        pytest.skip("this machine has no address but loopback")
    assert outside[0] == own_address(Redis(host=outside[0]))
    running = HealthServer(outside[0], 0, lambda: REPORT)
    assert 200 == ask(running)[0]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.server_address[1]), timeout=5)
    running.close()


# What makes it red


def vitals(**changes: Any) -> Vitals:
    """Return the notes of a worker that is well and idle."""
    horse = SimpleNamespace(pid=1, alive=True, rss=1 << 20)
    now = time.monotonic()
    made = Vitals(
        name="w1",
        settings=Settings(),
        stable=SimpleNamespace(horse=horse, served=("image.generate",), set_aside={}),  # type: ignore[arg-type]
        claims=SimpleNamespace(answered_at=now),  # type: ignore[arg-type]
        connected_at=deque(maxlen=5),
        shutdown=Shutdown(),
        reporter=SimpleNamespace(answered_at=now, renewed_at=now, task_id=None, asked=None),  # type: ignore[arg-type]
    )
    made.come_round()
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def ago(seconds: float) -> float:
    """Return a moment before now."""
    return time.monotonic() - seconds


def test_an_idle_worker_is_well() -> None:
    """Nothing to report."""
    report = vitals().report()
    assert (True, [], "idle", None) == tuple(report[name] for name in ("healthy", "reasons", "state", "task"))


def test_redis_that_does_not_answer() -> None:
    """For two beats, neither to the claims nor to the reporter; one of them is enough."""
    sick = vitals(_started_at=ago(60))
    sick.claims.answered_at = ago(60)
    assert sick.report()["healthy"]
    sick.reporter.answered_at = ago(11)  # type: ignore[union-attr]
    assert "no successful call to Redis for 11." in sick.report()["reasons"][0]


def test_connections_that_are_cut() -> None:
    """So many new ones within two beats, although each call succeeds in the end."""
    sick = vitals()
    sick.connected_at.extend([ago(11), ago(3), ago(2), ago(1), ago(0)])
    assert sick.report()["healthy"]
    sick.connected_at.append(ago(0))
    assert ["connections to Redis are cut: 5 new ones in 3.0 s"] == sick.report()["reasons"]


def test_a_lease_that_is_not_renewed() -> None:
    """Although Redis answers others of this worker's calls."""
    sick = vitals()
    sick.begin(None)
    sick.reporter.renewed_at = ago(12)  # type: ignore[union-attr]
    assert sick.report()["healthy"], "no task is held"
    sick.reporter.task_id = "t1"  # type: ignore[union-attr]
    assert "the lease was last renewed 12." in sick.report()["reasons"][0]


def test_a_claim_loop_that_hangs() -> None:
    """An idle worker comes round every few seconds; one at work does not."""
    sick = vitals(_round_at=ago(ROUND + 1))
    assert "the claim loop has not come round for 31 s" == sick.report()["reasons"][0]
    sick.begin(None)
    assert sick.report()["healthy"]
    sick.end()
    assert sick.report()["healthy"]


def test_a_worker_that_can_run_nothing() -> None:
    """Every type is set aside: it looks idle, and does nothing; one that has another type left is well."""
    sick = vitals()
    sick.stable.set_aside = {"image.generate": "setup of image.generate failed: no GPU"}  # type: ignore[misc]
    assert sick.report()["healthy"]
    sick.stable.served = ()  # type: ignore[misc]
    assert ["every task type is set aside: image.generate"] == sick.report()["reasons"]


def test_a_horse_that_does_not_get_ready() -> None:
    """It may load for long; one that cannot be started is told at once, until another is ready."""
    sick = vitals()
    sick.await_horse()
    assert ("loading", True) == (sick.report()["state"], sick.report()["healthy"])
    sick.await_horse("module x\nTraceback ...\nno module named x")
    sick.await_horse()
    assert ["the horse cannot be started: no module named x"] == sick.report()["reasons"]
    sick.come_round()
    assert sick.report()["healthy"]
    slow = vitals(_horse_awaited_since=ago(LOADING_LIMIT + 1))
    assert ["no horse is ready for 301 s"] == slow.report()["reasons"]
    slow.come_round()
    assert slow.report()["healthy"]


def test_the_record_of_a_beat() -> None:
    """Horse, types and GPU memory are in it, beside what the beat itself knows."""
    known = vitals(gpus=lambda: [GpuMemory(1, 2)], address="10.0.0.5:9000")
    beat = WorkerRecord("0.1.0", beat_at=7, lease=15_000)
    record = known.record(beat)
    assert record.horse_rss
    assert record == replace(
        beat, types=("image.generate",), horse_pid=1, horse_rss=record.horse_rss, gpus=(GpuMemory(1, 2),),
        health="10.0.0.5:9000",
    )  # fmt: skip


def test_the_record_of_an_attempt_that_was_asked_to_stop() -> None:
    """Why, and when its process is killed, by Redis' clock."""
    known = vitals()
    known.reporter.asked = ("cancelled", time.monotonic() + 30.0)  # type: ignore[union-attr]
    record = known.record(WorkerRecord(beat_at=1_000_000))
    assert ("cancelled", pytest.approx(1_030_000, abs=5_000)) == (record.stopping, record.kill_at)


def test_the_record_of_a_worker_that_loads_or_drains() -> None:
    """Since when there is no horse, and until when it drains, by Redis' clock."""
    known = vitals()
    known.await_horse()
    known.shutdown.request(30.0)
    record = known.record(WorkerRecord(beat_at=1_000_000))
    assert (1_000_000, 1_030_000) == (
        pytest.approx(record.loading_since, abs=5_000),
        pytest.approx(record.drain_ends_at, abs=5_000),
    )
    assert "draining" == known.report()["state"]
    assert known.record(WorkerRecord()).loading_since is None, "the worker does not know yet what Redis' clock says"
