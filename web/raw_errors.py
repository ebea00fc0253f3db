"""What gunicorn answers by itself, to what it cannot read as a request: told like every other error."""

import json
from typing import Any

from .guards import HEADERS
from .problems import PROBLEM, document


class ProblemErrors:
    """Lets a worker of gunicorn answer with problem details in place of pages; to be named before the worker."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Any) -> None:
        """Log an error, and answer the client."""
        parent: Any = super()
        parent.handle_error(req, _Answering(client), addr, exc)


class _Answering:
    """A connection to which an error's page is written, of which the status is passed on and nothing else."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def sendall(self, page: bytes) -> None:
        """Send the problem in place of the page."""
        self._client.sendall(as_problem(page))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def as_problem(page: bytes) -> bytes:
    """Return the answer with the status of another one, without its words: they quote what the client sent."""
    _, status, reason = page.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
    detail = "The request is not readable, or over a limit; see the limits in docs/api.md."
    body = json.dumps(document(f"http-{status}", int(status), reason, detail)) + "\n"
    headers = {**HEADERS, "Connection": "close", "Content-Type": PROBLEM, "Content-Length": str(len(body))}
    head = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*head, "", body]).encode("latin-1")
