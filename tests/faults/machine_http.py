"""The store's verbs as requests to the API, so that whoever uses one may as well use the other."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flask.testing import FlaskClient
from ghostless.jobs.errors import StaleAttempt, TaskNotFound
from ghostless.jobs.messages import Answer, Claim, Claimed, Ending, Held, NothingToClaim
from ghostless.jobs.submission import Request
from ghostless.statemachine import Event
from werkzeug.test import TestResponse

DONE = {"moved": "done", "already": "done"}
"""HTTP does not tell whether a wish was new: it is so now."""

ENDS = {Event.COMPLETE: "complete", Event.SUSPEND: "suspend", Event.STOPPED: "stopped"}
"""The routes by which an attempt ends otherwise than badly."""

ACTIONS = {"PROCESSING": "continue", "CANCELLING": "cancel", "PAUSING": "pause"}
"""What a worker is told to do, by the state of its task."""


class Http:
    """Clients and workers over HTTP."""

    def __init__(self, web: FlaskClient) -> None:
        self.web = web

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **headers: str) -> TestResponse:
        """Ask the API."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.web.open(f"/api/{path}", method=method, json=body, headers=sent)
        assert answer.status_code < 500, answer.text
        return answer

    def get(self, path: str) -> Any:
        """Return what the API shows."""
        answer = self.ask("GET", path)
        assert 200 == answer.status_code, answer.text
        return answer.json

    # People

    def submit(self, wish: Request) -> Answer:
        """Submit a task."""
        names = ("type", "id", "queue", "delay", "depends_on", "callback_url")
        body = {name: value for name in names if (value := getattr(wish, name))}
        key = {"Idempotency_Key": wish.idempotency_key} if wish.idempotency_key else {}
        answer = self.ask("POST", "tasks", body, **key)
        told = answer.json or {}
        if answer.status_code in (200, 202):
            return Answer("moved" if told["created"] else "already", told["id"], told["state"])
        if answer.status_code == 409 or "task" in told:
            return Answer("purged" if "purged" in told["detail"] else "conflict", told["task"])
        assert 422 == answer.status_code, answer.text
        wrong = {error["pointer"]: error["detail"] for error in told["errors"]}
        if "/callback_url" in wrong:
            return Answer("unserved", str(wish.id))
        details = [error["detail"] for error in told["errors"] if error["pointer"] == "/depends_on"]
        return Answer("unknown", str(wish.id), unknown=tuple(re.findall("'(.*?)'", " ".join(details))))

    def cancel(self, task_id: str, actor: str) -> Answer:
        """Cancel a task."""
        return self._act(task_id, "cancel", {"message": actor})

    def pause(self, task_id: str, actor: str) -> Answer:
        """Pause a task."""
        return self._act(task_id, "pause", {"message": actor})

    def resume(self, task_id: str, actor: str) -> Answer:
        """Resume a task."""
        return self._act(task_id, "resume", {"message": actor})

    def retry(self, task_id: str, actor: str) -> Answer:
        """Give a task another life."""
        return self._act(task_id, "retry", {"message": actor})

    def pause_queue(self, queue: str) -> None:
        """Let no task of a queue start."""
        self._tend("pause", queue)

    def resume_queue(self, queue: str) -> None:
        """Let the tasks of a queue start again."""
        self._tend("resume", queue)

    def _tend(self, verb: str, queue: str) -> None:
        answer = self.ask("POST", f"queues/{queue}/{verb}", {})
        assert (200, {"pause": "paused", "resume": "running"}[verb]) == (
            answer.status_code,
            (answer.json or {})["state"],
        )

    def _act(self, task_id: str, verb: str, body: Mapping[str, Any]) -> Answer:
        """Do something to a task, and tell what there is afterwards."""
        answer = self.ask("POST", f"tasks/{task_id}/{verb}", body)
        if answer.status_code in (404, 410):
            return Answer("missing", task_id)
        word = "done"
        if answer.status_code == 409:
            word = {"illegal-move": "refused", "stale-attempt": "stale"}[_kind(answer)]
        else:
            assert answer.status_code in (200, 202), answer.text
        told = self.get(f"tasks/{task_id}") if word != "done" else answer.json
        return Answer(word, task_id, told["state"], told["attempt"])

    # Workers

    def claim(self, claim: Claim) -> Claimed | NothingToClaim:
        """Ask for the next task of the claim's queue."""
        body = {"worker": claim.worker_id, "types": claim.types, "token": claim.token}
        answer = self.ask("POST", f"queues/{claim.queues[0]}/claim", body)
        if answer.status_code == 204:
            return NothingToClaim("empty")
        told = answer.json or {}
        assert (200, claim.worker_id, claim.token) == (answer.status_code, told["worker"], told["token"])
        held = Held(told["id"], told["attempt"], told["token"])
        return Claimed(held, None, told["params"], told["checkpoint"])  # type: ignore[arg-type]

    def heartbeat(self, held: Held) -> Answer:
        """Renew a lease."""
        return self._report("PUT", held, "heartbeat", {})

    def progress(self, held: Held, fraction: float, message: str) -> Answer:
        """Tell how far an attempt is."""
        return self._report("POST", held, "progress", {"fraction": fraction, "message": message})

    def checkpoint(self, held: Held, value_json: str) -> Answer:
        """Save a checkpoint."""
        return self._report("POST", held, "checkpoint", {"value": value_json})

    def log(self, held: Held, lines: Sequence[str]) -> Answer:
        """Append to the log."""
        return self._report("POST", held, "log", {"lines": lines})

    def _report(self, method: str, held: Held, verb: str, body: Mapping[str, Any]) -> Answer:
        answer = self.ask(method, f"tasks/{held.task_id}/{verb}", _of(held) | body)
        if answer.status_code in (404, 410):
            raise TaskNotFound(held.task_id)
        if answer.status_code == 409:
            assert "stale-attempt" == _kind(answer)
            raise StaleAttempt(held.task_id, held.attempt)
        told = answer.json or {}
        assert (held.attempt, ACTIONS[told["state"]]) == (told["attempt"], told["action"])
        return Answer("moved", held.task_id, told["state"], told["attempt"])

    def heartbeats(self, attempts: Sequence[Held]) -> list[tuple[str, str | None, str]]:
        """Renew several leases; return for each what came of it, the state of its task, and what is to be done."""
        tasks = [{"id": held.task_id, "attempt": held.attempt, "token": held.token} for held in attempts]
        answer = self.ask("POST", "heartbeats", {"worker": "far", "tasks": tasks})
        return [(told["outcome"], told["state"], told["action"]) for told in (answer.json or {})["tasks"]]

    def finish(self, held: Held, ending: Ending) -> Answer:
        """End an attempt."""
        if ending.event in ENDS:
            more = {"result": 1} if ending.event is Event.COMPLETE else {}
            return self._act(held.task_id, ENDS[ending.event], _of(held) | more)
        told = {"reason": str(ending.reason), "error": ending.text, "retryable": ending.retryable}
        return self._act(held.task_id, "fail", _of(held) | told)


def _of(held: Held) -> dict[str, Any]:
    return {"worker": "far", "attempt": held.attempt, "token": held.token}


def _kind(answer: TestResponse) -> str:
    return str((answer.json or {})["type"]).rpartition("/")[2].rpartition(":")[2].rpartition("#")[2]
