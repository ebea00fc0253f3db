"""Whether a fault test ended with the audit: by its calls, and by what moved after the last one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet import Fleet
from ghostless.jobs.keys import Keys
from redis import Redis
from redis.exceptions import ConnectionError, ResponseError

Effects = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class _Look:
    """One call of the audit."""

    redis: Redis
    keys: Keys
    effects: Effects
    last_move: str


_looks: list[_Look] = []


TESTS = Path(__file__).parent

NAMED = frozenset(re.findall(r"`(\w+/\w+\.py::\w+)`", (TESTS.parent / "docs" / "faults.md").read_text()))


def _folder_and_place(file: Path, name: str) -> tuple[str, str]:
    place = file.relative_to(TESTS)
    return place.parts[0], f"{place.as_posix()}::{name}"


def is_fault_test(file: Path, name: str) -> bool:
    """Tell whether a test must end with the audit: in `faults` each, in `acceptance` those of docs/faults.md."""
    folder, place = _folder_and_place(file, name)
    return folder == "faults" or folder == "acceptance" and place in NAMED


LEAVES_DAMAGE = {
    "scripts/test_damage.py::test_a_corrupt_field_is_named_and_nothing_is_written": "the field is corrupt to the end",
    "scripts/test_damage.py::test_a_wrong_type_at_any_key_stops_the_script_before_its_first_write": "so is the key",
    "scripts/test_dependencies.py::test_a_dependency_that_is_gone": "its record was deleted, and leaves the rest",
    "scripts/test_handcrafted.py::test_a_record_in_no_index_is_found_and_goes_on": "its history was never written",
    "scripts/test_handcrafted.py::test_a_record_that_cannot_be_read_is_told": "it cannot be read to the end",
    "scripts/test_listing.py::test_damaged_records_are_shown_and_hide_nobody": "they are damaged to the end",
    "scripts/test_rounds.py::test_a_glance_misses_no_entry_that_is_gone": "the long list is of nothing",
    "scripts/test_rounds.py::test_a_round_takes_a_minutes_sweeps": "its many keys are of no tasks",
}
"""Tests of docs/faults.md after which the database is not sound, and why."""


def is_to_leave_all_well(file: Path, name: str) -> bool:
    """Tell whether the database is audited after a test, without its doing."""
    folder, place = _folder_and_place(file, name)
    return folder in ("scripts", "integration", "unit") and place in NAMED and place not in LEAVES_DAMAGE


class NotAudited(AssertionError):
    """A fault test ended without a look at everything."""


def note_look(redis: Redis, keys: Keys, effects: Effects) -> None:
    """Note that the audit begins to look at a database, and of which side effects it was told."""
    _looks.append(_Look(redis, keys, effects, _last_move(redis, keys)))


@contextmanager
def ends_with_the_audit() -> Iterator[list[Fleet]]:
    """Raise NotAudited when the block ends without an audit after the last move of any task.

    Of the fleets that the block puts into the list, the audit must have been told every side effect.
    """
    _looks.clear()
    fleets: list[Fleet] = []
    yield fleets
    if not _looks:
        raise NotAudited("nobody looked at the whole database")
    last = _looks[-1]
    for fleet in fleets:
        if fleet.effects() != last.effects:
            raise NotAudited(f"the audit was told of {last.effects}, and the handlers did {fleet.effects()}")
    try:
        moved_last = _last_move(last.redis, last.keys)
    except ConnectionError:  # a server that is ended moves nothing
        return
    finally:
        last.redis.close()
    if moved_last != last.last_move:
        raise NotAudited(f"tasks moved after the audit: {moved_last} came after {last.last_move}")


def _last_move(redis: Redis, keys: Keys) -> str:
    """Return the id of the last history entry that was ever written, "" when none was."""
    try:
        return redis.xinfo_stream(keys.history)["last-generated-id"]
    except ResponseError:  # there is no such stream
        return ""
