"""The worker over HTTP of a chaos run: the example's, with a handler that notes when it runs."""

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ghostless.examples import http_worker
from ghostless.jobs.bounds import ATTEMPTS

TYPE, QUEUE = "chaos.http", "far"
STEP = 0.1
"""Seconds between two notes."""


def work(attempt: http_worker.Attempt, trace: str, seconds: float) -> None:
    """Run for so long, over all attempts, noting the time."""
    done = attempt.task["checkpoint"] or 0.0
    with (Path(trace) / attempt.task["id"]).open("a", buffering=1) as file:
        while True:
            attempt.check()
            file.write(f"{attempt.held['attempt']} {os.getpid()} {time.monotonic():.4f}\n")
            if done >= seconds:
                return
            time.sleep(STEP)
            done += STEP
            attempt.tell("checkpoint", value=done)


def publish(server: str, queue: str) -> None:
    """Publish the type: no budget may end a task here."""
    enough = dict.fromkeys(("max_retries", "max_timeouts", "max_losses"), ATTEMPTS.most)
    kind: dict[str, Any] = {"queue": queue, "schema": {}, "backoff": 0.05, "backoff_cap": 0.2, **enough}
    http_worker.accepted(http_worker.call("PUT", f"{server}/api/types/{TYPE}", kind))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    signal.signal(signal.SIGTERM, http_worker.stop)
    http_worker.TYPE, http_worker.shout, http_worker.publish = TYPE, work, publish
    http_worker.work(sys.argv[1], QUEUE, f"far-{os.getpid()}-http")
