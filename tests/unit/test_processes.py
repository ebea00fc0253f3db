"""Looking at processes and threads that come and go meanwhile."""

import os
import subprocess
import sys

import psutil
from ghostless.jobs.processes import offspring

ALONE = """
import os, subprocess, threading
from ghostless.jobs.processes import has_children

children = []
assert not has_children()
starter = threading.Thread(target=lambda: children.append(subprocess.Popen(["sleep", "60"])))
starter.start()
starter.join()
assert has_children(), "whichever thread started it"
children[0].kill()
os.waitid(os.P_PID, children[0].pid, os.WEXITED | os.WNOWAIT)
assert has_children(), "nobody has waited for it"
children[0].wait()
assert not has_children()
"""


def test_a_process_without_and_with_children() -> None:
    """A process of which nobody knows how many it has; the tests' own may have a server."""
    subprocess.run([sys.executable, "-c", ALONE], check=True, timeout=30)


def test_what_was_started_is_found() -> None:
    """Until it has ended."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in [process.pid for process in offspring(os.getpid())]
    finally:
        child.kill()
        child.wait()
    assert child.pid not in [process.pid for process in offspring(os.getpid())]


def test_a_process_that_is_gone_has_none() -> None:
    """Nobody is found below a pid that nobody has."""
    pid = next(pid for pid in range(4_000_000, 1, -1) if not psutil.pid_exists(pid))
    assert set() == offspring(pid)
