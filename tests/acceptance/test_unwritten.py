"""Work that is done, and an end that Redis refuses since something beside the task is damaged: it is kept."""

import signal
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually, expect

from .conftest import assert_clean, ended, running, story, submit_when_known

pytestmark = pytest.mark.slow


@pytest.fixture
def kept(fleet: Fleet, client: Client, trace: Path, end: Path) -> str:
    """A task whose worker cannot write its end; nobody watches, so nobody makes room for the index."""
    fleet.worker(name="w0", tasks="lifecycle")
    task_id = submit_when_known(client, "life.busy", {"trace": str(trace), "end": str(end)})
    running(trace)
    client.store.redis.set(client.store.keys.retention, "no index")
    end.touch()
    eventually(lambda: expect("holds the end of attempt 1" in client.explain(task_id).why))
    assert client.store.keys.retention in client.explain(task_id).why
    return task_id


def test_an_end_that_cannot_be_written_is_kept(fleet: Fleet, client: Client, kept: str) -> None:
    """For longer than a lease its worker holds it; once the doctor was there the task ends, and no budget is used."""
    renewals: set[int] = set()

    def assert_renewed() -> None:
        renewals.add(int(client.store.redis.pexpiretime(client.store.keys.heartbeat(kept))))
        assert max(renewals) - min(renewals) > 1000 * client.settings.lease, "for a whole lease it was renewed"

    eventually(assert_renewed, seconds=20)
    assert "ghostless doctor --repair" in fleet.logs()
    assert fleet.start("doctor", "--repair").wait(timeout=20) == 0
    task = ended(client, kept, "SUCCESS")
    assert (1, 0) == (task.attempt, task.losses)
    assert "TIMEOUT" not in story(client, kept)
    assert_clean(client, fleet, kept)


def test_a_worker_that_is_to_leave_lets_go_of_it(fleet: Fleet, client: Client, kept: str) -> None:
    """After the drain and three graces it ends; then the lease decides, and the task is to run anew."""
    fleet.processes[0].send_signal(signal.SIGTERM)
    assert fleet.processes[0].wait(timeout=20) == 0
    assert "not told to Redis" in fleet.logs()
    fleet.watchdog()
    assert 1 == ended(client, kept, "RETRY_WAITING", "PENDING").losses
    assert_clean(client, fleet, kept)
