"""That what is proved of every call is proved of every script."""

from pathlib import Path

import pytest
from ghostless import lua
from ghostless.lua.loader import SHARED
from redis import Redis
from scripts.seeding import ALL, Carrier, fire, scene, set_up


def test_no_script_is_left_out() -> None:
    """Each file of `lua/` that is no part of others has a call in `ALL`, so a new one fails here until it has.

    The one that notes workers over HTTP touches no task, and is tried alike in `test_note_worker.py`.
    """
    scripts = {file.stem for file in Path(str(lua.__file__)).parent.glob("*.lua")} - set(SHARED)
    assert scripts - {"note_worker"} == {carrier.verb for carrier in ALL}


@pytest.mark.parametrize("carrier", ALL, ids=[f"{number}-{call.verb}" for number, call in enumerate(ALL)])
def test_a_call_runs_the_script_that_it_is_named_after(fake_redis: Redis, carrier: Carrier) -> None:
    """And that script does something."""
    stage = scene(fake_redis)
    set_up(stage, carrier)
    assert fire(stage, carrier) in ("moved", "claimed")
    assert carrier.verb == stage.store.sent[0]
