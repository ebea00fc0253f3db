"""An attempt that does not know that it was taken away: `python -m old_attempt TYPE FOLDER`.

It takes a task, notes so, waits for a file `go`, and then tries each write that a worker has, whatever the answers.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ghostless.jobs.client import Client
from ghostless.jobs.errors import StaleAttempt
from ghostless.jobs.messages import Answer, Claim, Claimed, Ending, Held
from ghostless.jobs.store import Store
from ghostless.statemachine import Event, Reason

WELL = Ending(Event.COMPLETE, Reason.POLICY, text='"the old attempt"')
BADLY = Ending(Event.FAIL, Reason.EXCEPTION, "of the old attempt", "of the old attempt")


def writes(store: Store, held: Held) -> Mapping[str, Callable[[], Answer]]:
    """Return what writes to a task, by what it writes."""
    return {
        "progress": lambda: store.progress(held, 0.9, "of the old attempt"),
        "log": lambda: store.log(held, ["of the old attempt"]),
        "checkpoint": lambda: store.checkpoint(held, '"of the old attempt"'),
        "stage": lambda: store.stage(held, "worker:old", "of the old attempt"),
        "lease": lambda: store.heartbeat(held),
        "result": lambda: store.finish(held, WELL, "worker:old")[0],
        "error": lambda: store.finish(held, BADLY, "worker:old")[0],
    }


def tried(write: Callable[[], Answer]) -> str:
    """Return the answer to a write in one word."""
    try:
        return write().word
    except StaleAttempt:
        return "stale"


def main(task_type: str, folder: Path) -> None:
    """Take a task, wait, and note what each write was answered."""
    store = Client().store
    claimed = store.claim(Claim.new("old", ["default"], [task_type]))
    assert isinstance(claimed, Claimed)
    (folder / "taken").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    answers = {what: tried(write) for what, write in writes(store, claimed.held).items()}
    (folder / "answers").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
