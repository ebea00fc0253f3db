"""A fault test that does not end with the audit fails, whatever it names: each of these ends in another such way."""

import pytest
from audit import audit
from fleet import Fleet
from looks import NotAudited
from redis import Redis
from scripts.seeding import scene, submission

pytestmark = pytest.mark.xfail(raises=NotAudited, strict=True)


def test_without_any_audit(redis: Redis) -> None:
    """It looks at nothing, though it has the oracle at hand."""
    scene(redis).store.submit(submission("t1"))
    assert audit


def test_with_a_move_after_the_audit(redis: Redis) -> None:
    """What the last move left behind was seen by nobody."""
    stage = scene(redis)
    stage.store.submit(submission("t1"))
    assert [] == audit(redis, stage.keys, ["t1"])
    stage.store.cancel("t1", "tester")


def test_without_the_side_effects(redis: Redis, fleet: Fleet) -> None:
    """Handlers ran, and the audit was told of another side effect than theirs."""
    stage = scene(redis)
    assert [] == audit(redis, stage.keys)
    (fleet.folder / "effects").write_text("t1 1\n")
