"""A client of one event stream as a process of its own, which a test may stop. Writes the id of each move to a file.

When its connection ends it opens another one where it was, as browsers do.

Usage: python follower.py URL FILE
"""

import http.client
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

PAUSE = 0.1
"""Seconds until it connects again."""


def opened(url: str, last_id: str) -> http.client.HTTPResponse:
    """Open a stream, behind what was heard last."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little fits on the way to it
    connection.sock.connect((parts.hostname, parts.port))
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
    return connection.getresponse()


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """Yield the fields of each event that came whole."""
    fields: dict[str, str] = {}
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        else:
            yield fields
            fields = {}


def follow(url: str, path: str) -> None:
    """Follow a stream until this process is ended."""
    last_id = ""
    with open(path, "w", buffering=1) as file:
        while True:
            with suppress(OSError, http.client.HTTPException), opened(url, last_id) as answer:
                for fields in events(answer):
                    last_id = fields.get("id", last_id)
                    if fields.get("event") == "task":
                        print(last_id.rpartition(".")[2], file=file)
                    elif fields.get("event") == "reset":
                        print("reset", file=file)
            time.sleep(PAUSE)


if __name__ == "__main__":
    follow(*sys.argv[1:])
