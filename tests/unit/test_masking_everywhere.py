"""Secrets at random places of random models, and where a schema does not name them."""

import json
from typing import Annotated, Any

import pytest
from ghostless.jobs.masking import MASK, exposed, masked
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, Json, RootModel, SecretStr, create_model

SECRET = "s3cret-s3cret"


class Cred(BaseModel):
    """What holds a secret, also under another name."""

    key: SecretStr = Field(validation_alias=AliasChoices("key", "token"))
    name: str = ""


class Open(Cred):
    """One that keeps what it does not know."""

    model_config = ConfigDict(extra="allow")


class Account(RootModel[Cred]):
    """A reference that leads to a further one."""


class Outer(RootModel[Account]):
    """And on."""


def schema_of(annotation: Any) -> dict[str, Any]:
    """Return the schema of params with one param of this type."""
    return create_model("Params", x=(annotation, ...)).model_json_schema()


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (Account, {"key": SECRET}),
        (Outer, {"key": SECRET}),
        (Annotated[Outer, Field(description="of a reference", title="x")], {"key": SECRET}),
        (dict[Annotated[str, Field(pattern="^[a-z]+$")], SecretStr], {"a": SECRET}),
        (Cred, {"token": SECRET}),
        (Open, {"token": SECRET}),
        (Cred, {"key": "", "kye": SECRET}),
        (list[Cred], [{"kye": SECRET}]),
        (Cred | dict[str, str], {"token": SECRET}),
        (Json[Cred], json.dumps({"key": SECRET})),
        (dict[SecretStr, int], {SECRET: 1}),
        (tuple[int, SecretStr] | list[Any], [1, SECRET]),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(annotation: Any, given: Any) -> None:
    """Behind references, in members by a pattern, under another name, in texts and names."""
    assert SECRET not in json.dumps(masked({"x": given}, schema_of(annotation)))


def test_what_stands_beside_a_secret_is_shown() -> None:
    """Named members, those of models without secrets, and other choices of a union."""
    schema = schema_of(Cred | int)
    assert {"x": {"key": MASK, "name": "ann"}} == masked({"x": {"key": "a", "name": "ann"}}, schema)
    assert {"x": 7} == masked({"x": 7}, schema)

    class Both(BaseModel):
        cred: Cred
        free: dict[str, Any]

    assert {"x": {"free": {"a": [1]}}} == masked({"x": {"free": {"a": [1]}}}, schema_of(Both))


@pytest.mark.parametrize(
    "schema",
    [
        {"then": {"properties": {"x": {"writeOnly": True}}}},
        {"dependentSchemas": {"a": {"properties": {"x": {"writeOnly": True}}}}},
        {"properties": {"x": {"$ref": "#anchor"}}, "$defs": {"a": {"$anchor": "anchor", "writeOnly": True}}},
        {"properties": {"x": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": {"writeOnly": True}}},
        {"properties": {"x": {"contains": {"writeOnly": True}}}},
        {"unevaluatedProperties": {"writeOnly": True}},
    ],
)
def test_a_secret_is_found_behind_every_keyword(schema: dict[str, Any]) -> None:
    """Of JSON Schema, not only those that pydantic writes."""
    assert SECRET not in json.dumps(masked({"x": [SECRET], "a": 1}, schema))


TYPES = st.recursive(
    st.sampled_from([SecretStr, SecretStr, int, str]),
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),
        inner.map(lambda one: dict[str, one]),
        inner.map(lambda one: dict[Annotated[str, Field(pattern="^k")], one]),
        inner.map(lambda one: one | None),
        inner.map(lambda one: RootModel[one]),
        st.tuples(inner, inner).map(lambda two: tuple[two]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
            lambda fields: create_model("Model", **{name: (kind, ...) for name, kind in fields.items()})
        ),
    ),
    max_leaves=6,
)


@given(TYPES, st.data())
def test_the_text_of_a_secret_is_never_in_what_is_shown(annotation: Any, data: st.DataObject) -> None:
    """Whatever the model: each value that fits it, with the secret wherever pydantic takes it as one."""
    adapter = create_model("Params", x=(annotation, ...))
    values = st.recursive(
        st.sampled_from([SECRET, SECRET, 1, "plain", None]),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "k"]), inner, max_size=3)
        ),
        max_leaves=5,
    )
    value = data.draw(values)
    try:
        valid = adapter.model_validate({"x": value})
    except ValueError:
        return
    if SECRET not in repr(valid):  # all of it is behind SecretStr
        assert SECRET not in json.dumps(masked({"x": value}, adapter.model_json_schema()))


def test_a_schema_exposes_what_another_one_kept_secret() -> None:
    """By the name of the member; what was shown before may be shown on."""
    before = schema_of(Account)
    assert [] == exposed(before, before)
    assert ["key", "x"] == exposed(before, {"properties": {"x": {}}})
    assert ["key"] == exposed(before, {"properties": {"key": {}, "x": {"properties": {"key": {"writeOnly": True}}}}})
    assert ["params"] == exposed({"additionalProperties": {"writeOnly": True}}, {})
    assert [] == exposed({"properties": {"x": {}}}, {})
