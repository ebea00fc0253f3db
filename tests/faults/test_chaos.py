"""A short chaos run: faults at random under a mixed load break no promise."""

from pathlib import Path

import pytest
from faults.chaos import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_chaos(tmp_path: Path) -> None:
    """Whatever dies or blinks for a minute: nothing is lost, doubled or left behind, and every history is legal."""
    report = run(tmp_path, seconds=60, seed=7)
    print(report)
    assert report.is_clean
    assert report.accepted > 50
    assert any(death.noticed is not None for death in report.deaths), "nothing was killed while it ran a task"
