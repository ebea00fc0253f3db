"""Handlers of history entries for tests: the owner of a task says what becomes of them."""

import os
import signal
import time
from pathlib import Path

from ghostless.jobs import Client, Entry, RetryLater, on

FOLDER = Path(os.environ.get("REACTIONS", "."))


def note(name: str, entry: Entry) -> None:
    """Write down that a handler was called."""
    with FOLDER.joinpath(name).open("a") as file:
        file.write(f"{entry.task} {entry.event} {os.getpid()} {os.getppid()} {time.time()}\n")


@on("SUBMIT", retries=1, timeout=1.0)
def act(entry: Entry, client: Client) -> None:
    """Do what the owner is called."""
    note("begun", entry)
    owner = client.get(entry.task).owner
    if FOLDER.joinpath("mended").exists():
        owner = None
    match owner:
        case "raises":
            raise ValueError("cannot be")
        case "later":
            raise RetryLater(0.01, "not yet")
        case "hangs":
            os.fork() or time.sleep(600)
            time.sleep(600)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exits":
            raise SystemExit(3)
        case "kills":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)
        case "slow":
            time.sleep(0.5)
        case _:
            pass
    note("done", entry)
