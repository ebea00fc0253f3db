"""The listener's handler of a chaos run: it notes which ends it was told of."""

import os
from pathlib import Path

from ghostless.jobs import Client, Entry, on
from ghostless.statemachine import FINAL

FOLDER = "CHAOS_TOLD"


@on(*sorted(FINAL), retries=100)
def told(entry: Entry, _client: Client) -> None:
    """Note that a task has ended; a file each, so that a kill leaves no half line."""
    (Path(os.environ[FOLDER]) / entry.task).touch()
