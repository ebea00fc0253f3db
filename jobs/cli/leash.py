"""Ends process groups whose supervisor is gone, however it went.

Run as a script on its own, with nothing but the standard library. Only the supervisor holds the other end of
its standard input: the end of that pipe is the end of the supervisor, also by SIGKILL.
"""

import os
import signal
import sys
import time
from contextlib import suppress

PATIENCE = 5.0
"""Seconds between asking a group to end and killing it."""


def main() -> None:
    """Note "watch GROUP" and "forget GROUP" line by line; at the end of input, end what is still watched."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it outlives the supervisor, and then ends by itself
    groups: list[int] = []
    for line in sys.stdin:
        word, _, group = line.partition(" ")
        if word == "watch":
            groups.append(int(group))
        else:
            groups.remove(int(group))
    for group in reversed(groups):  # Redis was started first and ends last
        end_group(group, PATIENCE)


def end_group(group: int, patience: float) -> None:
    """Ask every process of a group to end, and kill what is left of it after `patience` seconds."""
    give_up_at = time.monotonic() + patience
    signal_group(group, signal.SIGTERM)
    while signal_group(group, 0) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a group; tell whether there was any process in it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    main()
