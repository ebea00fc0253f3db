"""Slow, deaf or frozen is not dead, and what is to be dead is, before anybody else starts (B13, B22, B23)."""

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.conftest import assert_clean, assert_in_turn, begun, ended, owner, running
from fleet import QUICK, Fleet, horse_of
from ghostless.jobs.client import Client

pytestmark = pytest.mark.slow

THREE_LEASES = math.ceil(3 * float(QUICK["GHOSTLESS_LEASE"]))


def test_slow_deaf_and_frozen_handlers(
    serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:
    """A native call of three leases loses nothing. Attempts that time out never overlap, frozen processes included.
    A signal for the horse alone ends nothing, and Ctrl-C hands the task back."""
    serving(workers=3)
    timed, interrupted = tmp_path / "timed", tmp_path / "interrupted"
    native = client.submit("life.hold_the_interpreter", {"seconds": THREE_LEASES}).task_id
    late = client.submit("life.until", {"trace": str(timed), "end": str(end)}, timeout=1).task_id
    handed = client.submit("life.until", {"trace": str(interrupted), "end": str(end)}).task_id
    running(timed)
    horse_of(owner(client, fleet, late)).send_signal(signal.SIGSTOP)
    running(interrupted)
    worker = owner(client, fleet, handed)
    horse_of(worker).terminate()
    running(interrupted, len(running(interrupted)) + 3)
    assert client.get(handed).attempt == 1
    os.killpg(worker.pid, signal.SIGINT)  # the whole group, as a terminal does
    assert worker.wait(timeout=20) == 0
    begun(interrupted, 2)
    begun(timed, 3)
    end.touch()
    assert ended(client, native, "SUCCESS").attempt == 1
    assert ended(client, late, "SUCCESS").timeouts == 2
    task = ended(client, handed, "SUCCESS")
    assert (task.attempt, task.losses, task.failures) == (2, 0, 0)
    assert_in_turn(timed)
    assert_in_turn(interrupted)
    assert_clean(client, fleet, native, late, handed)
