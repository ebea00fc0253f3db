"""A handler for `ghostless listener`: a line in the log for each task that came to a bad end.

    ghostless listener --handlers ghostless.examples.alerts

Copy it, and send the line to wherever your team looks.
"""

import logging

from ..jobs import Client, Entry, TaskNotFound, on

log = logging.getLogger("ghostless.example")


@on("FAILED", "TIMEOUT_CANCELLED", timeout=20)
def tell_of_bad_ends(entry: Entry, client: Client) -> None:
    """Log what became of a task, and why."""
    try:
        error = client.get(entry.task).error or ""
    except TaskNotFound:  # purged since
        error = ""
    last_line = error.strip().rpartition("\n")[2]
    log.warning("%s of %s is %s: %s", entry.type, entry.owner or "nobody", entry.to_state, last_line or entry.message)
