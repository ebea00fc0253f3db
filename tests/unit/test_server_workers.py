"""What our workers of gunicorn do with their doors and connections."""

import random
import selectors
import socket
from typing import Any

import gevent
from gevent.socket import socketpair
from ghostless.web.server_workers import Sender, ThreadedWorker


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


def test_what_a_slow_client_does_not_take_at_once_follows() -> None:
    """A block larger than what the system takes arrives whole and in order."""
    block = random.Random(7).randbytes(5_000_000)
    ours, theirs = socketpair()
    reader = gevent.spawn(lambda: b"".join(iter(lambda: theirs.recv(10_000), b"")))
    with ours, theirs:
        Sender(ours).sendall(block)
        ours.shutdown(socket.SHUT_WR)
        assert block == reader.get(timeout=30)
