"""A client of one event stream as a process of its own, which a test may stop. Writes the id of each move to a file.

Usage: python follower.py URL FILE
"""

import http.client
import socket
import sys
from urllib.parse import urlsplit


def follow(url: str, path: str) -> None:
    """Follow a stream until it is closed."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little fits on the way to it
    connection.sock.connect((parts.hostname, parts.port))
    connection.request("GET", f"{parts.path}?{parts.query}", headers={"Accept": "text/event-stream"})
    entry = ""
    with connection.getresponse() as answer, open(path, "w", buffering=1) as file:
        for line in answer:
            if line.startswith(b"id: "):
                entry = line.decode().strip().rpartition(".")[2]
            elif line.startswith(b"event: task"):
                print(entry, file=file)


if __name__ == "__main__":
    follow(*sys.argv[1:])
