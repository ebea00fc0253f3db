"""The HTTP API, as a client of it sees it."""

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import quote

import requests

TIMEOUT = 15.0
"""Seconds to wait for an answer."""


class Api:
    """Calls of one server. Raises requests.RequestException for whatever goes wrong."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/api"
        self._http = requests.Session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A connection kept alive would hold up the server when it stops.
        self._http.close()

    def submit(self, task_type: str, params: Mapping[str, Any]) -> str:
        """Submit a task and return its id."""
        return self._ask("POST", "/tasks", {"type": task_type, "params": params})["id"]

    def task(self, task_id: str) -> dict[str, Any]:
        """Return a task as it is now."""
        return self._ask("GET", f"/tasks/{quote(task_id)}")

    def cancel(self, task_id: str, message: str) -> None:
        """Cancel a task."""
        self._ask("POST", f"/tasks/{quote(task_id)}/cancel", {"message": message})

    def history(self, task_id: str) -> list[dict[str, Any]]:
        """Return every move of a task, oldest first."""
        return self._ask("GET", f"/tasks/{quote(task_id)}/history")["entries"]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        response = self._http.request(method, self.url + path, json=body, timeout=TIMEOUT)
        if not response.ok:
            raise requests.HTTPError(f"{method} {path} was answered {response.status_code}: {response.text[:300]}")
        return response.json()
