"""Odd results and exceptions of handlers, from a real worker into Redis: told, cut, and no harm to the next task."""

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.failure import ERROR_LIMIT, MESSAGE_LIMIT
from helpers import eventually, expect

from .conftest import assert_clean, ended

pytestmark = pytest.mark.slow

BAD_RESULTS = {
    "set": "result.images[0].tags: expected JSON, got set",
    "nan": "result.scores[1]: expected JSON, got nan",
    "surrogate": "result.text: expected JSON, got text with half of a surrogate pair",
    "large": "result is 1048578 bytes, at most 1048576",
    "unspeakable": "result.images[0]: expected JSON, got handlers.Unspeakable",
}
EXCEPTIONS = {
    "unreadable": "Unreadable: (its message cannot be read: RuntimeError)",
    "bytes": "ValueError: (b'\\xff', {1: None})",
    "value": "ValueError: (its message cannot be read: RuntimeError)",
    "surrogate": "ValueError: half a pair: ?",
    "long": "ValueError: headxxx",
}


def test_odd_endings(client: Client, fleet: Fleet) -> None:
    """A bad result is FAILED with type and path named, any exception is stored and cut, a coroutine is awaited.

    One process runs them all and lives on.
    """
    worker = fleet.worker("default", tasks="handlers")
    eventually(lambda: expect("test.result" in client.types()), seconds=20)
    process = ran_in(client)
    for what, message in BAD_RESULTS.items():
        assert_failed(client, client.submit("test.result", {"what": what}).task_id, "bad_result", message)
    for how, message in EXCEPTIONS.items():
        task_id = client.submit("test.raise", {"how": how}, max_retries=0).task_id
        assert_failed(client, task_id, "exception", message)
    echoed, raised = (client.submit("test.async", {"how": how}, max_retries=0).task_id for how in ("echo", "raise"))
    assert ended(client, echoed, "SUCCESS").result == "from a coroutine"
    assert_failed(client, raised, "exception", "ValueError: from a coroutine")
    assert (ran_in(client), worker.poll()) == (process, None)
    assert_clean(client, fleet)


def ran_in(client: Client) -> int:
    """Return the process that runs handlers."""
    return ended(client, client.submit("test.process").task_id, "SUCCESS").result["pid"]


def assert_failed(client: Client, task_id: str, reason: str, message: str) -> None:
    """Check how a task failed, and that what is kept of it is bounded."""
    task, entry = ended(client, task_id, "FAILED"), client.history(task_id)[-1]
    assert (task.reason, entry.reason) == (reason, reason)
    assert message in entry.message
    error = client.store.redis.get(client.store.keys.error(task_id)) or ""
    assert message.partition(":")[0] in error
    assert len(entry.message.encode()) <= MESSAGE_LIMIT
    assert len(error.encode()) <= ERROR_LIMIT
