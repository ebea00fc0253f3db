"""JSON of strangers: what is read, what is refused before it is parsed, and in how long."""

import json
import time
from typing import Any

import pytest
from ghostless.web.bodies import DEPTH_LIMIT, is_too_deep, parse_json
from ghostless.web.guards import BODY_LIMIT
from ghostless.web.problems import Refusal
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def refused(raw: bytes) -> str:
    """Return why a body is refused."""
    with pytest.raises(Refusal) as found:
        parse_json(raw)
    assert 400 == found.value.kind.status
    return found.value.detail


@given(JSON)
def test_whatever_is_json_is_read_as_it_is(value: Any) -> None:
    """Brackets and quotes in texts are text."""
    assert value == parse_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    assert value == parse_json(json.dumps(value, indent=1).encode())


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_nesting_is_bounded_before_anything_is_parsed(opening: str) -> None:
    """To the level, in objects and arrays, whether the text is JSON or not."""
    levels = opening.count("[") + opening.count("{")
    closing = "".join({"[": "]", "{": "}"}[bracket] for bracket in reversed(opening) if bracket in "[{")
    most = DEPTH_LIMIT // levels
    parse_json((opening * most + "1" + closing * most).encode())
    assert "levels" in refused((opening * (most + 1) + "1" + closing * (most + 1)).encode())
    assert "levels" in refused((opening * 500).encode())


def test_brackets_in_texts_are_no_levels() -> None:
    """Nor are those behind an escaped quote."""
    assert not is_too_deep(json.dumps(["[" * 500, '"' + "{" * 500, "\\", "[" * 500]))
    assert is_too_deep(json.dumps(["[" * 500])[:-1] + "[" * 100)
    assert not is_too_deep("[]" * 1000)


@pytest.mark.parametrize(
    "unit",
    ["[", "[]", "[],", '{"":', '"', '""', '"\\', "\\", '\\"', '"[', "{}", "1,", " ", "[[]]", '{"a":1},', "]"],
)
def test_a_body_at_its_limit_is_judged_in_a_moment(unit: str) -> None:
    """Whatever 2 MiB are filled with, no process is held up for long, and nothing recurses."""
    begun_at = time.process_time()
    refused((unit * BODY_LIMIT)[:BODY_LIMIT].encode())
    assert time.process_time() - begun_at < 5


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":2,"a":3}',
        b'[{"type":"work","\\u0074ype":"other"}]',
        b'{"params":{"n":1,"n":2}}',
        b'{"":1,"":2}',
    ],
)
def test_a_name_that_stands_twice_is_refused(raw: bytes) -> None:
    """One parser takes the first, another the last: what was checked may not be what is used."""
    assert "twice" in refused(raw)


@pytest.mark.parametrize("raw", [b"NaN", b"-Infinity", b'{"a": Infinity}', b"1" * 5000, b"[-" + b"9" * 4301 + b"]"])
def test_numbers_that_are_none_or_without_end_are_refused(raw: bytes) -> None:
    """JSON has no infinity, and reading a million digits takes for ever."""
    refused(raw)


@pytest.mark.parametrize(
    "raw", [b"\xff", b'"\xc0\xaf"', b'"\xed\xa0\x80"', b"\xfe\xff\x00[", b"\xef\xbb\xbf{}", b"\x00"]
)
def test_what_is_no_utf_8_is_refused(raw: bytes) -> None:
    """Overlong forms, surrogates, other encodings and byte order marks too."""
    refused(raw)


def test_no_refusal_quotes_the_body() -> None:
    """It may hold a secret."""
    for raw in (b'{"s3cret": s3cret}', b'{"s3cret":1,"s3cret":2}', b"s3cret", b'{"s3cret": NaN}'):
        assert "s3cret" not in refused(raw)
