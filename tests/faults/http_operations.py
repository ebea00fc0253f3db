"""What is done to Redis for those who ask over HTTP, and with their tokens, to be walked step by step."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from faults import step_scenes as before
from faults.callback_operations import an_end_that_was_told, is_to_be_told
from faults.steps import Operation
from faults.victims import command_line
from faults.world import QUEUE, TYPE, World
from flask.testing import FlaskClient
from ghostless.app import create_app
from ghostless.jobs.cli import tokens as tokens_verb  # noqa: F401  imported once for all processes
from ghostless.jobs.client import Client
from ghostless.jobs.errors import TokenNotFound
from ghostless.jobs.tokens import Scope, split
from ghostless.statemachine import State
from helpers import expect

TOKEN = "bb22bb22bb22bb22"
SUCCESS, CANCELLED, PAUSED = (State.SUCCESS,), (State.CANCELLED,), (State.PAUSED,)

_making = threading.Lock()
"""Routes are compiled, and CPython 3.11 counts the depth of that for all threads together."""


@contextmanager
def api(world: World) -> Iterator[FlaskClient]:
    """The API, asked without sockets."""
    with _making:
        app = create_app(client=Client(world.client.settings))
    yield app.test_client()
    app.extensions["ghostless"].hub.close()


# What there is before


def an_attempt_over_http(world: World) -> None:
    """Let a worker over HTTP start a task; it holds it for longer than a step takes."""
    world.submit("t1")
    with api(world) as web:
        claim = {"worker": world.worker, "types": [TYPE], "token": TOKEN}
        assert 200 == web.post(f"/api/queues/{QUEUE}/claim", json=claim).status_code
    world.note_attempt("t1", 1)


def an_attempt_that_is_to_pause(world: World) -> None:
    """Ask such a task to pause."""
    an_attempt_over_http(world)
    world.client.pause("t1")


def an_attempt_that_is_cancelled(world: World) -> None:
    """Cancel such a task."""
    an_attempt_over_http(world)
    world.client.cancel("t1")


def a_token(world: World) -> None:
    """Make a token."""
    world.client.tokens.add("ci", [Scope.READ])


# What is done


def end_by_http(world: World, way: str, **told: Any) -> None:
    """End the attempt in some way."""
    body = {"worker": world.worker, "attempt": 1, "token": TOKEN, **told}
    with api(world) as web:
        answer = web.post(f"/api/tasks/t1/{way}", json=body)
    assert 200 == answer.status_code, answer.text


def fail_by_http(world: World) -> None:
    """Fail, for the first time."""
    end_by_http(world, "fail", error="it broke")


def hand_back_by_http(world: World) -> None:
    """Give the task back for a shutdown."""
    end_by_http(world, "suspend", reason="shutdown")


def suspend_by_http(world: World) -> None:
    """Pause."""
    end_by_http(world, "suspend", reason="user")


def stop_by_http(world: World) -> None:
    """Confirm that a cancelled attempt was stopped."""
    end_by_http(world, "stopped")


def redeliver_by_http(world: World) -> None:
    """Tell an end again."""
    with api(world) as web:
        [told] = web.get("/api/tasks/t1/deliveries").get_json()["deliveries"]
        answer = web.post(f"/api/tasks/t1/deliveries/{told['id']}/redeliver")
    assert 202 == answer.status_code, answer.text


def add_a_token(_world: World) -> None:
    """Make a token, which is shown once."""
    command_line("tokens", "add", "--name", "ci", "--scope", "read")


def revoke_tokens(world: World) -> None:
    """Revoke what tokens there are; who does so again may hear that one is gone."""
    for token_id in world.client.tokens.all()[0]:
        with suppress(TokenNotFound):
            world.client.tokens.revoke(token_id)


# What is then


def what_was_shown_is_good(world: World) -> None:
    """Check that each token that was shown lets its holder in."""
    shown = list(filter(None, map(split, (world.folder / "output").read_text().split())))
    assert shown
    known, _ = world.client.tokens.all()
    expect(all(known[token_id].matches(secret) for token_id, secret in shown))


def none_is_left(world: World) -> None:
    """Check that no token is left."""
    expect(not world.client.tokens.all()[0])


OPERATIONS = (
    Operation(fail_by_http, an_attempt_over_http, {"t1": SUCCESS}, repeats=True),
    Operation(hand_back_by_http, an_attempt_over_http, {"t1": SUCCESS}, repeats=True),
    Operation(suspend_by_http, an_attempt_that_is_to_pause, {"t1": PAUSED}, repeats=True),
    Operation(stop_by_http, an_attempt_that_is_cancelled, {"t1": CANCELLED}, repeats=True),
    Operation(
        redeliver_by_http, an_end_that_was_told, {"t1": CANCELLED}, repeats=True, check=is_to_be_told, is_costly=True
    ),
    Operation(add_a_token, before.nothing, {}, repeats=True, check=what_was_shown_is_good),
    Operation(revoke_tokens, a_token, {}, repeats=True, check=none_is_left),
)
