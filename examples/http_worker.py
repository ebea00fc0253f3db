"""A worker that has HTTP and nothing else: no access to Redis, nothing of Ghostless installed but this file.

    ghostless serve &
    python http_worker.py http://127.0.0.1:8000 text

It publishes the task type `text.shout`, claims tasks of it, and runs them one after the other. What to copy: a call is
repeated until it is answered, with the same token; the lease is renewed meanwhile; and a handler asks often whether it
may go on. With $GHOSTLESS_TOKEN each call says who makes it. It tells on stderr what it does, and what it waits for.
"""

import logging
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

import requests

TYPE = "text.shout"
SCHEMA = {
    "type": "object",
    "properties": {"lines": {"type": "array", "items": {"type": "string"}}, "pause": {"type": "number", "minimum": 0}},
    "required": ["lines"],
    "additionalProperties": False,
}
HEADERS = {"Authorization": f"Bearer {os.environ['GHOSTLESS_TOKEN']}"} if "GHOSTLESS_TOKEN" in os.environ else {}

log = logging.getLogger("http_worker")
shutdown = threading.Event()


class Stop(Exception):
    """The attempt may not go on: `cancel`, `pause`, `shutdown`, or `lost` when somebody else has the task by now."""


class Attempt:
    """One attempt of a task, as it came from a claim."""

    def __init__(self, server: str, task: dict[str, Any]) -> None:
        self.task, self.url = task, f"{server}/api/tasks/{task['id']}"
        self.held = {name: task[name] for name in ("worker", "attempt", "token")}
        self.action, self.over = "continue", threading.Event()
        self.started_at = self.renewed_at = time.monotonic()

    def tell(self, what: str, method: str = "POST", **more: Any) -> None:
        """Report something, and hear what is to become of the attempt."""
        asked_at = time.monotonic()
        answer = call(method, f"{self.url}/{what}", self.held | more, longest_pause=self.task["heartbeat"])
        if answer.ok:
            self.action, self.renewed_at = answer.json().get("action", "ended"), asked_at
        elif answer.status_code in (404, 409, 410):
            self.action = "lost"
        else:
            raise ValueError(answer.text)

    def beat(self) -> None:
        """Renew the lease until the attempt is over."""
        while not self.over.wait(self.task["heartbeat"]):
            self.tell("heartbeat", "PUT")

    def check(self) -> None:
        """Raise Stop when the handler is to stop, TimeoutError when its time is over."""
        now = time.monotonic()
        if now > self.renewed_at + self.task["lease"] or self.action == "lost":
            raise Stop("lost")
        if self.action != "continue" or shutdown.is_set():
            raise Stop(self.action if self.action != "continue" else "shutdown")
        if now > self.started_at + self.task["timeout"]:
            raise TimeoutError(f"it ran for {self.task['timeout']} s")


def shout(attempt: Attempt, lines: list[str], pause: float = 0) -> list[str]:
    """The handler: goes on from the lines that an earlier attempt saved."""
    done: list[str] = attempt.task["checkpoint"] or []
    for line in lines[len(done) :]:
        attempt.check()
        time.sleep(pause)
        done.append(line.upper())
        attempt.tell("checkpoint", value=done)
        attempt.tell("progress", fraction=len(done) / len(lines), message=f"{len(done)} of {len(lines)} lines")
    attempt.check()
    return done


def run(attempt: Attempt) -> None:
    """Run a task and report how it ended, unless it is somebody else's by now."""
    what = f"attempt {attempt.held['attempt']} of task {attempt.task['id']}"
    log.info("%s begins", what)
    beats = threading.Thread(target=attempt.beat, daemon=True)
    beats.start()
    try:
        attempt.tell("complete", result=shout(attempt, **attempt.task["params"]))
    except Stop as stop:
        log.info("%s may not go on: %s", what, stop)
        if stop.args[0] == "cancel":
            attempt.tell("stopped")
        elif stop.args[0] in ("pause", "shutdown"):
            attempt.tell("suspend", reason="user" if stop.args[0] == "pause" else "shutdown")
    except TimeoutError as error:
        attempt.tell("fail", reason="deadline", error=str(error))
    except Exception:
        attempt.tell("fail", error=traceback.format_exc())
    finally:
        attempt.over.set()
        beats.join()
        log.info("%s is over", what)


def call(method: str, url: str, body: dict[str, Any], longest_pause: float = 10.0) -> requests.Response:
    """Call until there is an answer: a lost connection, 429 and 5xx only mean "not known yet".

    Who holds a task asks again as often as he beats: a longer pause could outlast the lease, with the server back.
    """
    pause = min(0.5, longest_pause)
    while True:
        try:
            answer = requests.request(method, url, json=body, headers=HEADERS, timeout=45)
            if answer.status_code < 500 and answer.status_code != 429:
                return answer
            reason = f"status {answer.status_code}"
        except requests.RequestException as error:
            reason = str(error)
        log.warning("no answer yet to %s %s, trying again: %s", method, url, reason)
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, longest_pause)


def accepted(answer: requests.Response) -> requests.Response:
    """Return an answer; a refusal ends the worker with the words of the server, as the next one would be one too."""
    if answer.ok:
        return answer
    is_problem = answer.headers.get("Content-Type", "").startswith("application/problem+json")
    detail = answer.json().get("detail") if is_problem else answer.reason
    sys.exit(f"{answer.request.method} {answer.url}: {answer.status_code}: {detail}")


def publish(server: str, queue: str) -> None:
    """Tell what this worker serves."""
    accepted(call("PUT", f"{server}/api/types/{TYPE}", {"queue": queue, "schema": SCHEMA}))


def work(server: str, queue: str, worker: str) -> None:
    """Claim and run tasks until SIGTERM."""
    publish(server, queue)
    log.info("%s waits for tasks of the type %s in the queue %s", worker, TYPE, queue)
    while not shutdown.is_set():
        # A fresh token for each claim; `call` repeats it with the same one, and so gets the same task.
        claim = {"worker": worker, "types": [TYPE], "token": secrets.token_hex(16)}
        answer = call("POST", f"{server}/api/queues/{queue}/claim?wait=30", claim)
        if answer.status_code == 409 and "type-not-published" in answer.text:  # Redis lost what it knew
            publish(server, queue)
            continue
        accepted(answer)
        if answer.status_code == 200:
            run(Attempt(server, answer.json()))


def stop(*_: object) -> None:
    """Let the running task hand itself back; an idle worker just ends: a task that it is given now is found again."""
    shutdown.set()
    if threading.active_count() == 1:
        sys.exit(0)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} SERVER QUEUE [NAME]")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    name = sys.argv[3] if len(sys.argv) > 3 else f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"
    work(sys.argv[1].rstrip("/"), sys.argv[2], name)
