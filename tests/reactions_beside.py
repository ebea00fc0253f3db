"""A handler of the same entries as those of `reactions`, to stand beside them."""

from ghostless.jobs import Client, Entry, on
from reactions import note


@on("SUBMIT")
def watch(entry: Entry, client: Client) -> None:
    """Note that it was called."""
    note("watched", entry)
