"""What concerns the worker alone, without any process."""

import os

import pytest
from ghostless.jobs.worker import Worker


def test_a_stop_before_the_fork_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """rq's command to stop a job that has no process yet must not end the worker, whose group it would hit."""
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _signal: killed.append(group))
    worker = object.__new__(Worker)
    worker._horse_pid = 0
    worker.kill_horse()
    assert killed == []
