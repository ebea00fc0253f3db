"""What our workers of gunicorn do with their doors."""

import selectors
import socket
from typing import Any

from ghostless.web.server_workers import ThreadedWorker


def test_a_stop_while_it_is_about_to_accept_closes_no_door_that_is_listened_at() -> None:
    """It would be told of a client at a closed door, fail, and cut off everybody; it closes when it listens no more."""
    poller: Any = selectors.DefaultSelector()
    with poller, socket.create_server(("127.0.0.1", 0)) as door:
        worker: Any = ThreadedWorker.__new__(ThreadedWorker)
        worker.__dict__ |= {"alive": False, "sockets": [door], "poller": poller, "_accepting": False}
        worker.set_accept_enabled(True)
        assert [door] == [key.fileobj for key in poller.get_map().values()]
        assert -1 != door.fileno()
        worker.set_accept_enabled(False)
        assert [] == list(poller.get_map().values())
        assert -1 == door.fileno()
