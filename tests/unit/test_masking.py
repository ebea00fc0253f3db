"""What is masked of params, and what of it an error tells."""

from typing import Any

import pytest
from ghostless.jobs.catalog import PublishedType
from ghostless.jobs.errors import InvalidParams
from ghostless.jobs.masking import MASK
from ghostless.jobs.registry import Registry, TaskType
from ghostless.jobs.submission import Request
from ghostless.statemachine import Policy
from pydantic import BaseModel, Field, SecretStr

SECRET = "s3cret-s3cret"


class Account(BaseModel):
    """Params inside of params."""

    name: str
    password: SecretStr
    older: "list[Account]" = []


def handler(
    ctx: object,
    site: str,
    key: SecretStr = SecretStr("none"),  # noqa: B008
    spare: SecretStr | None = None,
    keys: list[SecretStr] = [],  # noqa: B006
    named: dict[str, SecretStr] = {},  # noqa: B006
    pair: tuple[str, SecretStr] | None = None,
    account: Account | None = None,
    pin: SecretStr = Field(default=SecretStr("0000"), min_length=4),  # noqa: B008
) -> None:
    """Take secrets in every place there is."""


@pytest.fixture
def declared() -> TaskType:
    """The handler as a worker has it."""
    registry = Registry()
    registry.task("t")(handler)
    kind = registry.get("t")
    assert kind
    return kind


@pytest.fixture
def kind(declared: TaskType) -> PublishedType:
    """The same as the web server has it."""
    return PublishedType("t", "q", Policy(), declared.schema(), "")


PARAMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"key": SECRET}, {"key": MASK}),
    ({"spare": SECRET}, {"spare": MASK}),
    ({"spare": None}, {"spare": None}),
    ({"keys": [SECRET, SECRET]}, {"keys": [MASK, MASK]}),
    ({"keys": []}, {"keys": []}),
    ({"named": {"a": SECRET}}, {"named": {"a": MASK}}),
    ({"pair": ["a", SECRET]}, {"pair": ["a", MASK]}),
    (
        {"account": {"name": "ann", "password": SECRET, "older": [{"name": "bob", "password": SECRET}]}},
        {"account": {"name": "ann", "password": MASK, "older": [{"name": "bob", "password": MASK}]}},
    ),
    ({}, {}),
]


@pytest.mark.parametrize(("given", "shown"), PARAMS)
def test_what_a_handler_takes_as_a_secret_is_masked(
    kind: PublishedType, declared: TaskType, given: dict[str, Any], shown: dict[str, Any]
) -> None:
    """At any depth, and nothing else is; the worker gets the values."""
    site = {"site": "example"}
    assert [] == kind.faults(given | site)
    submission = Request("t", given | site).checked("tester", lambda _name, _params: kind)
    assert shown | site == kind.masked(given | site)
    assert SECRET not in submission.params_json
    assert submission.secrets_json.count(SECRET) == str(given).count(SECRET)
    valid = declared.validate(given | site)
    assert SECRET not in str(valid)
    if "key" in given:
        assert SECRET == valid["key"].get_secret_value()


def test_a_task_without_secrets_keeps_its_params_once(kind: PublishedType) -> None:
    """Nobody pays for what he does not use."""
    assert "" == Request("t", {"site": "a"}).checked("x", lambda _name, _params: kind).secrets_json


def test_two_secrets_are_two_wishes(kind: PublishedType) -> None:
    """A repeated submit is told by what was given, not by what is shown."""

    def fingerprint(key: str) -> str:
        return Request("t", {"site": "a", "key": key}).checked("x", lambda _name, _params: kind).fingerprint

    assert fingerprint("a") == fingerprint("a") != fingerprint("b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": [SECRET]},
        {"key": {"a": SECRET}},
        {"pin": SECRET[:3]},
        {"spare": [SECRET]},
        {"keys": SECRET},
        {"keys": [SECRET, [SECRET]]},
        {"named": {"a": [SECRET]}},
        {"pair": [SECRET, SECRET, SECRET]},
        {"account": {"name": "ann", "password": [SECRET]}},
        {"account": {"password": SECRET}},
        {"account": {"name": 1, "password": SECRET}},
        {"key": SECRET, "other": 1},
    ],
)
def test_no_error_quotes_a_secret(kind: PublishedType, declared: TaskType, wrong: dict[str, Any]) -> None:
    """Neither the web server's nor the worker's, which stands in the task's record with its traceback."""
    faults = kind.faults({"site": "a"} | wrong)
    assert faults
    assert [] == [fault for fault in faults if "s3c" in fault.message]
    with pytest.raises(InvalidParams) as refused:
        declared.validate({"site": "a"} | wrong)
    assert "s3c" not in f"{refused.value} {refused.value.__cause__}"
