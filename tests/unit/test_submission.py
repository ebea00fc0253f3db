"""What may be submitted: every field wrong in turn and all at once, and what a good wish becomes."""

import json
import math
import re
import time
from typing import Any

import pytest
from ghostless.jobs.bounds import TIMEOUT, WAIT
from ghostless.jobs.catalog import PublishedType
from ghostless.jobs.errors import InvalidTask, TooLarge
from ghostless.jobs.submission import Request, new_id
from ghostless.jobs.values import VALUE_LIMIT
from ghostless.statemachine import Policy

KIND = PublishedType("demo.add", "slow", Policy(max_retries=7), {}, "")


def check(**fields: Any) -> Any:
    """Check a request that is good but for the given fields."""
    return Request(**{"type": "demo.add", "params": {"a": 1}, **fields}).checked("tester", lambda name, params: KIND)


class Unspeakable:
    """A value whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


NO_NUMBERS = (
    math.nan,
    -1,
    math.inf,
    -math.inf,
    1e12,
    10**400,
    -(10**400),
    "1h",
    "1",
    True,
    [],
    {},
    Unspeakable(),
    10**5000,
)
WRONG: list[tuple[str, Any]] = [
    *(("type", value) for value in (None, "", "a b", "x" * 65, "a/b", "ümlaut", 7, b"demo", "a\n", Unspeakable())),
    *(("params", value) for value in (None, [], "{}", 7, {1: 2}, {"a": math.nan}, {"a": {1, 2}}, {"a": "\ud800"})),
    *(("id", value) for value in ("", "a b", "x" * 65, "a.b", "a:b", "a/b", "é", 7, True, "a\n", "*")),
    *(("queue", value) for value in ("", "a b", "x" * 65, "a:b", 7, "a\n")),
    *(("owner", value) for value in ("", "x" * 65, "é" * 33, "a\nb", "\x00", 7, "\ud800")),
    *(("idempotency_key", value) for value in ("", "x" * 256, "a\x1bb", 7)),
    *(("delay", value) for value in NO_NUMBERS),
    *(("timeout", value) for value in (*NO_NUMBERS, 0, 0.0001, TIMEOUT.most + 1)),
    *(("run_at", value) for value in (*NO_NUMBERS, 0)),
    *(("max_retries", value) for value in (*NO_NUMBERS, 1.5, 1001)),
    *(("callback_url", value) for value in ("", 7, b"https://a", "a", "http://a.example", "https://a.example/\n")),
    *(("metadata", value) for value in ({"a": math.inf}, {"a": object()}, "\udfff", {(1, 2): 3})),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{at}-{field}" for at, (field, _) in enumerate(WRONG)])
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    """InvalidTask names the field, what was expected and, shortened, what came (B21)."""
    with pytest.raises(InvalidTask) as caught:
        check(**{field: value})
    (fault,) = caught.value.faults
    assert re.match(rf"(a key of )?{field}\b", fault.field)
    assert re.match(r"expected .+, got .+", fault.message, re.DOTALL)
    assert len(fault.message) < 300


def test_every_fault_is_named_at_once() -> None:
    """A person corrects one submit, not one field a try."""
    wrong = {
        **{"type": "a b", "params": [], "id": "a b", "queue": "", "owner": "", "idempotency_key": ""},
        **{"delay": -1, "run_at": -1, "timeout": -1, "max_retries": -1},
    }
    with pytest.raises(InvalidTask) as caught:
        check(**wrong)
    assert [*wrong] == [fault.field for fault in caught.value.faults]
    assert all(f"{field}: " in str(caught.value) for field in wrong)


def test_delay_and_run_at_exclude_each_other() -> None:
    """A task is due after a time or at a time, not both."""
    with pytest.raises(InvalidTask, match="run_at: give either delay or run_at"):
        check(delay=1, run_at=time.time())


@pytest.mark.parametrize(
    ("field", "value", "name", "stored"),
    [
        ("delay", 0, "delay", 0),
        ("delay", 1.5, "delay", 1_500),
        ("delay", WAIT.most, "delay", 31_622_400_000),
        ("run_at", 1_700_000_000.25, "run_at", 1_700_000_000_250),
        ("timeout", 0.2, "policy", Policy(timeout=200, max_retries=7)),
        ("timeout", TIMEOUT.most, "policy", Policy(timeout=round(TIMEOUT.most * 1000), max_retries=7)),
        ("max_retries", 0, "policy", Policy(max_retries=0)),
        ("max_retries", None, "policy", Policy(max_retries=7)),
        ("queue", None, "queue", "slow"),
        ("queue", "fast", "queue", "fast"),
        ("owner", "Ann Böll <ann@example.org>", "owner", "Ann Böll <ann@example.org>"),
        ("metadata", None, "metadata_json", ""),
        ("metadata", False, "metadata_json", "false"),
        ("metadata", {"ü": [1, None]}, "metadata_json", '{"ü":[1,null]}'),
        ("params", {"ü": 1.0}, "params_json", '{"ü":1.0}'),
        ("id", "Z-_9", "task_id", "Z-_9"),
        ("idempotency_key", "order 7", "idempotency_key", "order 7"),
    ],
)
def test_a_good_field_is_stored_in_its_unit(field: str, value: Any, name: str, stored: Any) -> None:
    """Seconds become milliseconds, values become compact JSON, the type's policy fills in what was not said."""
    assert stored == getattr(check(**{field: value}), name)


@pytest.mark.parametrize("field", ["params", "metadata"])
def test_a_value_over_its_limit_is_too_large(field: str) -> None:
    """A mebibyte of JSON in UTF-8 is the most; the error tells both sizes."""
    just = {"a": "é" * (VALUE_LIMIT // 2 - 4)}
    assert VALUE_LIMIT == len(json.dumps(just, ensure_ascii=False, separators=(",", ":")).encode())
    check(**{field: just})
    with pytest.raises(TooLarge, match=f"{field} is {VALUE_LIMIT + 1} bytes, at most {VALUE_LIMIT}"):
        check(**{field: {"a": just["a"] + "x"}})


def test_deep_params_are_refused_and_not_met_by_a_recursion_error() -> None:
    """What cannot be read back elsewhere is not accepted."""
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidTask, match="params"):
        check(params=deep)


def test_the_fingerprint_is_of_type_and_params_alone() -> None:
    """The order of keys, the id and the time-outs do not matter to whether a repeated submit asks the same."""
    same = {check(params={"a": 1, "b": [1, 2]}, id="one").fingerprint, check(params={"b": [1, 2], "a": 1}).fingerprint}
    assert 1 == len(same | {check(params={"a": 1, "b": [1, 2]}, timeout=5, queue="other", metadata=1).fingerprint})
    assert not same & {check(params={"a": 1, "b": [2, 1]}).fingerprint, check(params={"a": 1}).fingerprint}
    assert check().fingerprint != check(type="demo.sub").fingerprint
    assert 32 == len(check().fingerprint)


def test_a_fresh_id_is_a_uuid_of_version_7() -> None:
    """32 hex digits that sort by their time, and are never the same."""
    ids = [new_id() for _ in range(1_000)]
    assert 1_000 == len(set(ids))
    assert all(re.fullmatch(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", task_id) for task_id in ids)
    assert [task_id[:12] for task_id in ids] == sorted(task_id[:12] for task_id in ids)
    assert abs(int(ids[0][:12], 16) / 1000 - time.time()) < 60
    assert 32 == len(check().task_id)
