"""What may leave a handler, and how the rest is refused."""

import enum
from typing import Any

import pytest
from ghostless.jobs.errors import GhostlessError, TooLarge
from ghostless.jobs.values import LEVELS, VALUE_LIMIT, InvalidValue, cut, cut_middle, to_json
from hypothesis import given
from hypothesis import strategies as st


class Colour(enum.StrEnum):
    """A text of its own type."""

    RED = "red"


class Broken(dict[str, Any]):
    """A dict that cannot be read."""

    def items(self) -> Any:
        """Raise."""
        raise OSError("disk full")


class Opaque:
    """A type without a JSON form."""


def nested(levels: int) -> list[Any]:
    """Return lists inside lists."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ((1, 2.5, True), "[1,2.5,true]"),
        ({"a": {"b": []}}, '{"a":{"b":[]}}'),
        ("ü\n", '"ü\\n"'),
        ({1: "x", None: "y"}, '{"1":"x","null":"y"}'),
        (Colour.RED, '"red"'),
        ([[[]]] * 1000, f"[{','.join(['[[]]'] * 1000)}]"),
    ],
)
def test_json_values_pass(value: Any, text: str) -> None:
    """Whatever JSON has a form for becomes compact JSON."""
    assert to_json("result", value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("inf"), "result: expected JSON, got inf"),
        ({"a": [0, {"b": float("nan")}]}, "result.a[1].b: expected JSON, got nan"),
        ([b"x"], "result[0]: expected JSON, got bytes"),
        ({"o": Opaque()}, f"result.o: expected JSON, got {__name__}.Opaque"),
        ({(1,): 2}, "a key of result: expected JSON, got tuple"),
        ({float("nan"): 2}, "a key of result: expected JSON, got nan"),
        ({"\udfff": 2}, "a key of result: expected JSON, got text with half of a surrogate pair"),
        (["\ud800"], "result[0]: expected JSON, got text with half of a surrogate pair"),
        ([10**5000], "result: expected JSON, got Exceeds the limit"),
        (Broken(a=1), f"result: expected JSON, got {__name__}.Broken that raises OSError"),
        (nested(LEVELS + 1), "result: expected JSON, got more than 200 levels"),
        (nested(5000), "expected JSON, got more than 200 levels"),
    ],
)
def test_the_rest_is_named_with_its_place(value: Any, message: str) -> None:
    """What has no JSON form is refused with its path and what it is, whatever the value does when it is read."""
    with pytest.raises(InvalidValue) as raised:
        to_json("result", value)
    assert message in str(raised.value)


def test_a_refusal_is_a_value_error_of_ours() -> None:
    """A handler can catch a refused value as ValueError, and as the root of our errors."""
    assert issubclass(InvalidValue, ValueError)
    assert issubclass(InvalidValue, GhostlessError)


def test_values_may_be_deep_up_to_the_limit() -> None:
    """The deepest value that is allowed passes."""
    assert to_json("result", nested(LEVELS)) == "[" * LEVELS + "]" * LEVELS


def test_sizes_are_counted_in_bytes() -> None:
    """The limit holds for the UTF-8 form, quotes included."""
    assert to_json("result", "x" * (VALUE_LIMIT - 2))
    with pytest.raises(TooLarge) as raised:
        to_json("result", "ü" * (VALUE_LIMIT // 2))
    assert (raised.value.size, raised.value.limit) == (VALUE_LIMIT + 2, VALUE_LIMIT)


@given(st.text(st.characters(exclude_categories=())), st.integers(0, 20))
def test_cut_keeps_whole_characters(text: str, limit: int) -> None:
    """A cut text fits, and is a beginning of the whole one."""
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    assert text.encode("utf-8", "replace").decode().startswith(short)


@given(st.text(st.characters(exclude_categories=()), max_size=300), st.integers(50, 200))
def test_cut_middle_keeps_head_and_tail(text: str, limit: int) -> None:
    """A text that is cut in its middle fits; a short one stays as it is."""
    clean = text.encode("utf-8", "replace").decode()
    short = cut_middle(text, limit)
    assert len(short.encode()) <= limit
    if len(clean.encode()) <= limit:
        assert short == clean
    else:
        head, tail = short.split("\n[...]\n", 1)
        assert clean.startswith(head)
        assert clean.endswith(tail)
