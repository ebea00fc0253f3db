"""What the check of params costs, whatever the schema and the params are, and that it still is the check."""

import contextlib
import cProfile
import time
from typing import Any

import pytest
from ghostless.jobs.catalog import PublishedType
from ghostless.jobs.errors import FAULTS_LIMIT, InvalidParams
from ghostless.jobs.foreign_schema import fault_of
from ghostless.jobs.schema_check import STEPS_LIMIT, TooCostly, first_errors
from ghostless.statemachine import Policy
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

MANY = 500_000
CALLS_A_STEP = 60
"""Most functions, of Python's own too, that are called in a step; some 20 when a list of numbers is checked."""

NAMES = [f"name{number}" for number in range(5500)]
FALLBACK: dict[str, Any] = {}


def either(kind: str) -> dict[str, Any]:
    """Return a schema with a union of itself and another one, which tells them apart last."""
    union = [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"type": "null"}]
    return {"properties": {"child": {"anyOf": union}, "kind": {"const": kind}}}


def nested(levels: int) -> Any:
    """Return what fits the second choice on each level."""
    return {"child": nested(levels - 1), "kind": "b"} if levels else None


COSTLY: list[tuple[dict[str, Any], Any]] = [
    ({"items": {"type": "integer"}}, [""] * MANY),
    ({"items": {"type": "integer"}}, [1] * MANY),
    ({"items": {}}, [1] * MANY),
    ({"items": {"enum": NAMES}}, NAMES[-1:] * 8000),
    ({"items": {"enum": list(range(5500))}}, [5499] * 8000),
    ({"items": {"anyOf": [{"enum": NAMES}, FALLBACK]}}, ["other"] * 8000),
    ({"items": {"anyOf": [{"required": NAMES}, FALLBACK]}}, [{}] * 80_000),
    ({"items": {"anyOf": [{"dependentRequired": {"a": NAMES}}, FALLBACK]}}, [{"a": 1}] * 80_000),
    ({"items": {"enum": [["same"] * 99 + [name] for name in NAMES[:60]]}}, [["same"] * 99 + ["other"]] * 1000),
    ({"anyOf": [{"type": "string"}] * 900 + [FALLBACK]}, [[1] * MANY]),
    ({"anyOf": [{"type": "integer"}] * 900 + [FALLBACK]}, "x" * 1_000_000),
    ({"anyOf": [{"additionalProperties": False}] * 900 + [FALLBACK]}, dict.fromkeys(map(str, range(90_000)))),
    ({"additionalProperties": False, "properties": dict.fromkeys(NAMES, FALLBACK)}, dict.fromkeys(NAMES)),
    ({"uniqueItems": True}, [{"a": number} for number in range(90_000)]),
    ({"uniqueItems": True}, [number * (2**61 - 1) for number in range(50_000)]),  # whose hashes are the same
    ({"allOf": [{"uniqueItems": True}] * 900}, [{"a": number} for number in range(90_000)]),
    ({"pattern": "^(a+)+$"}, "a" * 40 + "b"),
    ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 40 + "b": 1}),
    ({"$ref": "#/$defs/a", "$defs": {"a": either("a"), "b": either("b")}}, nested(60)),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), COSTLY, ids=[str(number) for number in range(len(COSTLY))])
def test_a_check_takes_a_moment(schema: dict[str, Any], value: Any) -> None:
    """Or is given up in a moment: long lists, long enums, unions in unions, quadratic keywords, costly patterns.

    However much there is to check, no more functions are called than the steps that are counted allow.
    """
    profile = cProfile.Profile()
    began = time.process_time()
    with contextlib.suppress(TooCostly):
        profile.runcall(first_errors, schema, value, FAULTS_LIMIT)
    assert sum(each.callcount for each in profile.getstats()) < CALLS_A_STEP * STEPS_LIMIT
    assert time.process_time() - began < 60, "one call may take long, too: a pattern, say"


def kind(schema: dict[str, Any]) -> PublishedType:
    """Return a published type with this schema."""
    return PublishedType("work", "work", Policy(), schema, "")


def test_what_is_long_but_ordinary_is_checked_whole() -> None:
    """A list of 80 000 numbers, a set of 20 000 texts, an object with 20 000 members."""
    numbers = {"x": {"type": "array", "items": {"type": "number"}}}
    texts = {"y": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}
    members = {"z": {"type": "object", "additionalProperties": {"type": "integer"}}}
    assert [] == kind({"properties": numbers}).faults({"x": [0.5] * 80_000})
    assert [] == kind({"properties": texts}).faults({"y": [str(number) for number in range(20_000)]})
    assert [] == kind({"properties": members}).faults({"z": {str(number): 1 for number in range(20_000)}})
    assert ["params.x.79999"] == [
        fault.field for fault in kind({"properties": numbers}).faults({"x": [1] * 79_999 + [""]})
    ]


def test_what_is_too_much_to_check_is_a_fault_of_the_params() -> None:
    """It says so, and is not accepted unchecked."""
    [fault] = kind({"properties": {"x": {"items": {"type": "integer"}}}}).faults({"x": [1] * MANY})
    assert "params" == fault.field
    assert "too much to check" in fault.message


def test_an_error_names_the_first_faults_and_says_that_there_are_more() -> None:
    """However many there are."""
    faults = kind({"properties": {"x": {"items": {"type": "integer"}}}}).faults({"x": [""] * 1000})
    told = InvalidParams("work", faults).faults
    assert FAULTS_LIMIT + 1 == len(told)
    assert ("params.x.0", "params") == (told[0].field, told[-1].field)
    assert FAULTS_LIMIT == len(InvalidParams("work", faults[:FAULTS_LIMIT]).faults)


@pytest.mark.parametrize(
    ("schema", "params"),
    [
        ({"properties": {"x": {"multipleOf": 0.1}}}, {"x": 10**400}),
        ({"type": "nothing"}, {}),
        ({"$ref": "#"}, {}),
        ({"$ref": "#/nowhere"}, {}),
    ],
)
def test_what_the_validator_stumbles_over_is_a_fault_of_the_params(schema: dict[str, Any], params: Any) -> None:
    """Redis holds what was published: nothing is damaged there."""
    [fault] = kind(schema).faults(params)
    assert "params" == fault.field
    assert "cannot be checked" in fault.message
    secret = {"properties": {"key": {"writeOnly": True}}, **schema}
    assert "s3cret" not in kind(secret).faults({"key": "s3cret", **params})[0].message


def test_a_name_in_a_fault_is_cut() -> None:
    """Also the name of a member, which may be as long as a body."""
    [fault] = kind({"additionalProperties": {"type": "integer"}}).faults({"n" * 10_000: ""})
    assert len(fault.field) <= 500


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            *({"type": "integer"}, {"type": "string"}, {"const": 1}, {"enum": [1, "a", [1]]}, {"minLength": 2}, {}),
            *({"uniqueItems": True}, {"pattern": "^a"}, {"required": ["a"]}, {"minItems": 1}, {"maxProperties": 1}),
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"items": inner, "prefixItems": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from("ab"), inner),
                "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner),
                "additionalProperties": inner | st.booleans(),
            },
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3), "not": inner}),
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, "a", "ab", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab", "c"]), inner),
    max_leaves=8,
)


@given(SCHEMAS, VALUES)
def test_the_check_finds_what_jsonschema_finds(schema: dict[str, Any], value: Any) -> None:
    """Where it is not given up; only their own keywords' messages differ."""
    places = [list(error.absolute_path) for error in first_errors(schema, value, 1000)]
    expected = [list(error.absolute_path) for error in Draft202012Validator(schema).iter_errors(value)]
    assert sorted(map(str, expected)) == sorted(map(str, places))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a~0b", "$defs": {"a~0b": {}}},
        {"$ref": "#/$defs/a%7E1b", "$defs": {"a%7E1b": {}}},
        {"$ref": "#/$defs/a%2Fb", "$defs": {"a%2Fb": {}, "a/b": {}}},
        {"$ref": "$defs/a", "$defs": {"a": {}}},
    ],
)
def test_a_reference_over_http_is_read_as_the_check_reads_it(schema: dict[str, Any]) -> None:
    """One that would lead nowhere is not taken, so that no submit fails by it."""
    fault = fault_of(schema)
    assert fault
    assert "schema.$ref" == fault.field


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a~0b", "$defs": {"a~b": {"type": "object"}}},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "object"}}},
        {"$ref": "#/$defs/a%7E1b", "$defs": {"a/b": {"type": "object"}}},
        {"$ref": "#/$defs/%C3%A4", "$defs": {"ä": {"type": "object"}}},
    ],
)
def test_an_escaped_reference_is_taken_and_followed(schema: dict[str, Any]) -> None:
    """By the rules of JSON pointers in fragments."""
    assert fault_of(schema) is None
    assert [] == kind(schema).faults({})
