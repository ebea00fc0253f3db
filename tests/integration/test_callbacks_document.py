"""The receiver of docs/callbacks.md, run as it stands there, gets what is delivered."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from ghostless.jobs.callbacks import plan
from ghostless.jobs.client import Client
from ghostless.jobs.deliverer import Deliverer
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.posting import Poster
from ghostless.jobs.settings import Settings
from helpers import eventually
from redis import Redis
from scripts.seeding import ID, scene, submission
from werkzeug.serving import make_server

DOCUMENT = Path(__file__).parents[2] / "docs" / "callbacks.md"
SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@contextmanager
def serving(app: Flask) -> Iterator[int]:
    """Serve an application that is none of ours; yield the port."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("secrets", "state"), [((OTHER, SECRET), "delivered"), ((OTHER,), "waiting")])
def test_the_receiver_of_the_document(
    redis: Redis,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    secrets: tuple[str, ...],
    state: str,
) -> None:
    """It takes what is signed with its secret, once, and nothing else."""
    [example] = re.findall(r"```python\n# receiver\.py\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.setenv("GHOSTLESS_CALLBACK_SECRET", SECRET)
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(example, str(DOCUMENT), "exec"), names)
    home = (ip_network("127.0.0.0/8"),)
    client = Client(replace(settings, callback_secret=secrets, callback_networks=home), redis)
    client.listeners.create(CALLBACKS)
    delivering = Deliverer(client, Poster(home), threading.Event())
    with serving(names["app"]) as port, ThreadPoolExecutor(1) as pool:
        store = scene(redis).store
        store.submit(submission(callback_url=f"http://127.0.0.1:{port}/hooks/ghostless"))
        store.cancel(ID, "tester")
        plan(client.history(ID)[-1], client)

        def is_tried() -> None:
            delivering.step(pool)
            [listed] = client.deliveries_of(ID)
            assert listed.delivery.tries
            assert state == listed.delivery.state

        eventually(is_tried)
    assert (f"task.cancelled {ID} None" in capsys.readouterr().out) == (state == "delivered")
