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


def abandon() -> None:
    """Start a process in a session of its own, of which no parent is left, and note it."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        FOLDER.joinpath("abandoned").open("a").write(f"{os.getpid()}\n")
        time.sleep(600)
    os._exit(0)


def die(how: str) -> None:
    """End the process, or that of the listener."""
    match how:
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "abandons":
            abandon()
            os._exit(3)
        case _:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)


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
        case "crashes" | "abandons" | "kills":
            die(owner)
        case "forks":
            if os.fork():
                time.sleep(0.2)  # so that the child is done first
                raise ValueError("cannot be")
            return
        case "exits":
            raise SystemExit(3)
        case "slow":
            time.sleep(0.5)
        case _:
            pass
    note("done", entry)
