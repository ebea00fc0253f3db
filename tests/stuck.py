"""A handler of history entries that never returns, for tests of what goes on beside it."""

import os
import time
from pathlib import Path

from ghostless.jobs import Client, Entry, on
from ghostless.statemachine import UNRECORDED, Event


@on(*set(Event) - UNRECORDED, timeout=3600)
def hang(entry: Entry, client: Client) -> None:
    """Note that it was called, and hang."""
    with Path(os.environ["STUCK"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(3600)
