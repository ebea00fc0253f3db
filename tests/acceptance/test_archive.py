"""Archiving watchdogs that are killed again and again: no task is purged that the archive does not have."""

import signal
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean
from fleet import Fleet
from ghostless.jobs.archive_file import find_archived
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.submission import Request
from helpers import eventually, expect
from web_tools import end_retention, publish

pytestmark = [pytest.mark.slow]

TASKS = 1000


def test_killed_archivists_lose_no_task(client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """Two that archive and one that does not, kill -9 at any moment: each purged task is found in a whole line."""
    publish(client.store)
    folder = tmp_path / "archive"
    folder.mkdir()
    accepted = client.submit_many([Request("work", {}) for _ in range(TASKS)])
    ids = [submitted.task_id for submitted in accepted]
    for task_id in ids:
        client.cancel(task_id)
    client.store.demand_archive()
    with connect(client.settings) as redis:
        end_retention(redis, client.store.keys, ids)
    fleet.watchdog()
    fleet.environment["GHOSTLESS_ARCHIVE_TO"] = str(folder)
    purged = 0
    for _ in range(2):
        watchdog = fleet.watchdog()
        eventually(lambda least=purged: expect(client.reads.ledger()["purged"] > least), seconds=20)
        watchdog.send_signal(signal.SIGKILL)
        watchdog.wait()
        purged = client.reads.ledger()["purged"]
    fleet.watchdog()
    eventually(lambda: expect(client.reads.ledger()["purged"] == TASKS), seconds=40)
    for task_id in ids[:: TASKS // 10]:
        assert "CANCELLED" == find_archived(folder, task_id)["task"]["state"]
    assert TASKS == client.reads.ledger()["archived"]
    assert_clean(client, fleet, *ids)
