"""A server that others than this machine reach starts once somebody has a token, and lets in nobody without one."""

import pytest
import requests
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.tokens import Scope
from helpers import eventually, expect, free_port, run_command

from .conftest import assert_clean


@pytest.mark.parametrize("options", [(), ("--require-tokens",)])
def test_nothing_listens_there_before_there_is_a_token(client: Client, fleet: Fleet, options: tuple[str, ...]) -> None:
    """It says how to make one; a token that is over or damaged is none."""
    _, over = client.tokens.add("over", [Scope.READ], seconds=1)
    key = client.store.keys.tokens
    client.store.redis.hset(key, over.id, client.store.redis.hget(key, over.id).replace(str(over.expires), "1"))
    client.store.redis.hset(key, "damaged", "{")
    port = str(free_port())
    code, shown = run_command("serve", "--host", "0.0.0.0", "--port", port, *options, environment=fleet.surroundings)
    assert (1, True) == (code, "Error: 0.0.0.0 is reached from other machines, and nobody has a token yet" in shown)
    assert "ghostless tokens add --name NAME --scope admin" in shown
    assert "Traceback" not in shown


def test_on_this_machine_it_starts_without_one(client: Client, fleet: Fleet) -> None:
    """Where tokens are demanded here too it says how to make one, and serves whoever has one by then."""
    port = free_port()
    fleet.start("serve", "--port", str(port), "--require-tokens", "--no-watchdog")
    url = f"http://127.0.0.1:{port}"
    eventually(lambda: expect(200 == status(f"{url}/healthz")), seconds=20)
    assert "nobody has a token yet, and everybody needs one: ghostless tokens add" in fleet.logs()
    assert 401 == status(f"{url}/api/tasks")
    text, _ = client.tokens.add("ann", [Scope.READ])
    assert 200 == status(f"{url}/api/tasks", Authorization=f"Bearer {text}")


def test_beyond_this_machine_a_token_is_demanded(client: Client, fleet: Fleet) -> None:
    """Whatever is asked, but for whether it lives; a token lets in."""
    text, _ = client.tokens.add("ann", [Scope.READ])
    port = free_port()
    fleet.start("serve", "--host", "0.0.0.0", "--port", str(port), "--no-watchdog")
    url = f"http://127.0.0.1:{port}"
    eventually(lambda: expect(200 == status(f"{url}/healthz")), seconds=20)
    assert {401} == {status(url + path) for path in ("/api/tasks", "/api/tasks/t", "/api/stats", "/api/events")}
    assert 200 == status(f"{url}/api/tasks", Authorization=f"Bearer {text}")
    assert_clean(client, fleet)


def status(url: str, **headers: str) -> int:
    """Return the status of an answer."""
    try:
        return requests.get(url, headers=headers, timeout=5).status_code
    except requests.ConnectionError as error:
        raise AssertionError(error) from error
