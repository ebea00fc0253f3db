"""A short chaos run: faults at random under a mixed load break no promise."""

from pathlib import Path

import pytest
from faults.chaos import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_chaos(tmp_path: Path) -> None:
    """Whatever dies or blinks for twenty seconds: nothing is lost or doubled, and every history is legal."""
    report = run(tmp_path, seconds=20, seed=7)
    assert report.is_clean, str(report)
    assert report.accepted > 20
