"""What a pool decides: names, and when a worker is started again. The processes are for the acceptance tests."""

import time

import pytest
from ghostless.jobs import pool
from ghostless.jobs.errors import InvalidSetting
from ghostless.jobs.pool import LONGEST_PAUSE, SHORTEST_PAUSE, Place, places


def names(*wish: object) -> list[str]:
    """Return the names of the places of a pool."""
    return [place.name for place in places(*wish)]  # type: ignore[arg-type]


def test_workers_are_numbered() -> None:
    """From 1, also when there is only one: it may have been more before."""
    assert ["gpu-1", "gpu-2", "gpu-3"] == names("gpu", 3, None)
    assert ["gpu-1"] == names("gpu", 1, None)


def test_workers_are_called_after_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number, or by its place among those that have none; several of one device are numbered."""
    assert ["box-gpu0", "box-gpu3"] == names("box", 1, "0,3")
    assert ["box-gpu0-1", "box-gpu0-2", "box-gpu3-1", "box-gpu3-2"] == names("box", 2, "0,3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c,MIG-41b3")
    assert ["box-gpu0", "box-gpu1"] == names("box", 1, "all")


def test_a_name_without_room_for_a_number_is_refused() -> None:
    """By the name of the option, before anything is started."""
    with pytest.raises(InvalidSetting, match="--name: expected a name that leaves room for -10"):
        places("x" * 62, 10, None)


def pauses(place: Place, deaths: int) -> list[float]:
    """Let a worker die at once again and again; return how long it is left alone each time."""
    found: list[float] = []
    for _ in range(deaths):
        before = time.monotonic()
        place.note_death(1)
        found.append(place.start_at - before)
    return found


def test_a_worker_that_dies_again_and_again_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is twice the one before, up to half a minute, with jitter; a long life makes it short again."""
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    place = Place("w-1")
    place._started_at = time.monotonic()
    found = pauses(place, 12)
    assert [SHORTEST_PAUSE, 2 * SHORTEST_PAUSE, 4 * SHORTEST_PAUSE] == [round(pause, 1) for pause in found[:3]]
    assert LONGEST_PAUSE == round(found[-1]) == round(found[-2])
    monkeypatch.setattr(pool, "LONG_LIFE", 0.0)
    assert [SHORTEST_PAUSE] == [round(pause, 1) for pause in pauses(place, 1)]


def test_each_worker_has_a_port_of_its_own() -> None:
    """The ports follow the first one; without one nobody answers."""
    assert [9000, 9001, 9002] == [place.health_port for place in places("gpu", 3, None, 9000)]
    assert [0, 0] == [place.health_port for place in places("gpu", 2, None)]
    with pytest.raises(InvalidSetting, match="--health-port: expected at most 65533 for 3 workers"):
        places("gpu", 3, None, 65_534)
