"""A server that others than this machine reach lets nobody in without a token, even where there is none yet."""

import pytest
import requests
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.tokens import Scope
from helpers import eventually, expect, free_port

from .conftest import assert_clean


@pytest.mark.slow
def test_beyond_this_machine_a_token_is_demanded(client: Client, fleet: Fleet) -> None:
    """Whatever is asked, but for whether it lives; a token lets in."""
    port = free_port()
    fleet.start("serve", "--host", "0.0.0.0", "--port", str(port), "--no-watchdog")
    url = f"http://127.0.0.1:{port}"

    def status(path: str, **headers: str) -> int:
        try:
            return requests.get(f"{url}{path}", headers=headers, timeout=5).status_code
        except requests.ConnectionError as error:
            raise AssertionError(error) from error

    eventually(lambda: expect(200 == status("/healthz")), seconds=20)
    assert {401} == {status(path) for path in ("/api/tasks", "/api/tasks/t", "/api/stats", "/api/events")}
    text, _ = client.tokens.add("ann", [Scope.READ])
    assert 200 == status("/api/tasks", Authorization=f"Bearer {text}")
    assert_clean(client, fleet)
