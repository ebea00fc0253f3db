"""The decorator, what it refuses, and the schema that a signature becomes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from ghostless.jobs import Context, InvalidHandler, InvalidParams, InvalidValue
from ghostless.jobs.registry import Registry, TaskType
from ghostless.statemachine import Policy
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field


class Size(BaseModel):
    """A param with parts."""

    width: int
    height: Annotated[int, Field(ge=1)] = 512


class Mode(StrEnum):
    """A param of named values."""

    FAST = "fast"
    FINE = "fine"


@dataclass
class Tag:
    """A param that is a dataclass."""

    name: str


@pytest.fixture
def registry() -> Registry:
    """A registry of its own."""
    return Registry()


def registered(registry: Registry, handler: Callable[..., Any], **options: Any) -> TaskType:
    """Register a handler and return its type."""
    registry.task("a.type", **options)(handler)
    found = registry.get("a.type")
    assert found
    return found


def generate(
    ctx: Context,
    prompt: str,
    steps: Annotated[int, Field(ge=1, le=100)] = 30,
    *,
    size: Size | None = None,
    mode: Mode = Mode.FAST,
    tags: list[Tag] = [],  # noqa: B006
    schema: Literal["a", "b"] = "a",
    _seed: int = 0,
    at: datetime | None = None,
) -> dict[str, Any]:
    """Make an image.

    With more to say.
    """
    return {"prompt": prompt}


def test_the_function_stays_as_it_is(registry: Registry) -> None:
    """A decorated function is the same function, to be called and tested without any runner."""
    assert registry.task("a.type")(generate) is generate


def test_defaults_are_the_policys(registry: Registry) -> None:
    """What the decorator is not told is the default policy, on the queue `default`."""
    found = registered(registry, generate)
    assert (found.queue, found.policy, found.never_retry) == ("default", Policy(), ())


def test_seconds_become_milliseconds(registry: Registry) -> None:
    """Times are seconds in the decorator and integer milliseconds in the policy."""
    found = registered(
        registry, generate, queue="gpu", timeout=0.2, max_retries=0, max_timeouts=1, max_losses=2, backoff=0.5,
        backoff_cap=10, retention=60,
    )  # fmt: skip
    assert found.queue == "gpu"
    assert found.policy == Policy(200, 0, 1, 2, 500, 10_000, 60_000)


LONG = 10**9
WRONG = [
    *[("timeout", value) for value in (True, "60", None, 0, -1, float("nan"), float("inf"), 7 * 86_400 + 1, 0.0001)],
    *[("retention", value) for value in (59.9, 0, -1, float("nan"), LONG, False)],
    *[("backoff", value) for value in (-1, float("nan"), LONG, "2")],
    *[("backoff_cap", value) for value in (-1, float("inf"), True)],
    *[("max_retries", value) for value in (-1, 1.5, True, "3", None, LONG)],
    *[("max_timeouts", value) for value in (-1, False)],
    *[("max_losses", value) for value in (-1, 2.0)],
    *[("queue", value) for value in ("", "a b", "ü", "x" * 65, None, "a:b")],
    *[("never_retry", value) for value in (ValueError, [ValueError], ("ValueError",), (KeyboardInterrupt,), (1,))],
    *[("setup", value) for value in (1, "load")],
    *[("teardown", value) for value in (1, "unload")],
]


@pytest.mark.parametrize(("argument", "value"), WRONG)
def test_wrong_arguments_are_refused(registry: Registry, argument: str, value: Any) -> None:
    """A value that cannot be used is refused where it is written: the type, the argument, what was expected and got."""
    with pytest.raises(InvalidHandler) as refused:
        registry.task("a.type", **{argument: value})
    assert str(refused.value).startswith(f"task type 'a.type': {argument}: expected ")
    assert ", got " in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 65, "a\n", None, 7])
def test_wrong_names_are_refused(registry: Registry, name: Any) -> None:
    """A task type has a name that fits into every key and address."""
    with pytest.raises(InvalidHandler, match="name: expected 1 to 64"):
        registry.task(name)


def test_a_setup_is_not_async(registry: Registry) -> None:
    """A setup runs outside any event loop, so a coroutine is refused."""

    async def load() -> None: ...

    with pytest.raises(InvalidHandler, match="setup"):
        registry.task("a.type", setup=load)


def test_two_handlers_of_one_name(registry: Registry) -> None:
    """A second handler of the same name is refused, naming both."""
    registry.task("a.type")(generate)
    with pytest.raises(InvalidHandler) as refused:

        @registry.task("a.type")
        def other(ctx: Context) -> None: ...

    assert "generate" in str(refused.value)
    assert "other" in str(refused.value)


def _no_context() -> None: ...
def _context_by_name(*, ctx: Context) -> None: ...
def _all_positions(*ctx: Context) -> None: ...
def _positions(ctx: Context, *args: int) -> None: ...
def _names(ctx: Context, **kwargs: int) -> None: ...
def _by_position(ctx: Context, a: int, /) -> None: ...
def _no_annotation(ctx: Context, a=1) -> None: ...  # type: ignore[no-untyped-def]
def _generator(ctx: Context) -> Any:
    yield 1


async def _async_generator(ctx: Context) -> Any:
    yield 1


class _Callable:
    def __call__(self, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("handler", "what"),
    [
        (_no_context, "first parameter"),
        (_context_by_name, "first parameter"),
        (_all_positions, "first parameter"),
        (_positions, "parameter args"),
        (_names, "parameter kwargs"),
        (_by_position, "parameter a"),
        (_no_annotation, "parameter a: expected a type annotation"),
        (_generator, "handler"),
        (_async_generator, "handler"),
        (_Callable(), "handler"),
        (_Callable, "handler"),
        (None, "handler"),
    ],
)
def test_wrong_handlers_are_refused(registry: Registry, handler: Any, what: str) -> None:
    """A function that cannot be called with a context and params by name is refused, naming what is wrong."""
    with pytest.raises(InvalidHandler, match=f"task type 'a.type': {what}"):
        registry.task("a.type")(handler)


def _unknown(ctx: Context, a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _no_json(ctx: Context, a: Callable[[], None]) -> None: ...
def _no_type(ctx: Context, a: 7) -> None: ...  # type: ignore[valid-type]


@pytest.mark.parametrize("handler", [_unknown, _no_json, _no_type])
def test_annotations_without_a_json_form(registry: Registry, handler: Any) -> None:
    """A param whose annotation has no JSON form is refused by name when its schema is asked for."""
    with pytest.raises(InvalidHandler, match="parameter a: expected a type with a JSON form"):
        registered(registry, handler).schema()


def test_annotations_may_be_text(registry: Registry) -> None:
    """Only the params' annotations are looked up, so that the context's may be known to a type checker alone."""

    def handler(ctx: "NotImported", size: "Size") -> "NeitherThis": ...  # type: ignore  # noqa: F821, PGH003

    assert registered(registry, handler).validate({"size": {"width": 1}}) == {"size": Size(width=1)}


def test_coroutines_are_handlers(registry: Registry) -> None:
    """A handler may be a coroutine function."""

    async def handler(ctx: Context, a: int) -> None: ...

    assert registered(registry, handler).validate({"a": 1}) == {"a": 1}


# Params


def test_the_schema_is_json_schema(registry: Registry) -> None:
    """A signature becomes a valid JSON Schema with names, bounds and defaults; nothing else is allowed."""
    schema = registered(registry, generate).schema()
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    assert schema["required"] == ["prompt"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == ["prompt", "steps", "size", "mode", "tags", "schema", "_seed", "at"]
    assert schema["properties"]["steps"] == {
        "default": 30, "maximum": 100, "minimum": 1, "title": "Steps", "type": "integer"
    }  # fmt: skip


def test_params_become_arguments(registry: Registry) -> None:
    """Params arrive as the annotated types, and those not given as their defaults."""
    params = {"prompt": "a cat", "size": {"width": 64}, "mode": "fine", "tags": [{"name": "x"}], "_seed": 7}
    assert registered(registry, generate).validate(params) == {
        "prompt": "a cat",
        "steps": 30,
        "size": Size(width=64, height=512),
        "mode": Mode.FINE,
        "tags": [Tag("x")],
        "schema": "a",
        "_seed": 7,
        "at": None,
    }


def test_defaults_are_not_shared(registry: Registry) -> None:
    """A list that is a default is a new one for each attempt."""
    found = registered(registry, generate)
    found.validate({"prompt": "x"})["tags"].append("left over")
    assert found.validate({"prompt": "x"})["tags"] == []


def test_a_field_may_be_the_default(registry: Registry) -> None:
    """A param may be described by pydantic's Field in the place of its default."""

    def handler(ctx: Context, steps: int = Field(30, le=100)) -> None: ...

    found = registered(registry, handler)
    assert found.validate({}) == {"steps": 30}
    assert found.schema()["properties"]["steps"]["maximum"] == 100


def test_every_fault_is_named(registry: Registry) -> None:
    """Wrong params are refused with one fault for each problem, at its path."""
    params = {"steps": 0, "size": {"height": 0}, "tags": [{"name": "x"}, {"name": 7}], "other": 1, "mode": "slow"}
    with pytest.raises(InvalidParams) as refused:
        registered(registry, generate).validate(params)
    assert {fault.field for fault in refused.value.faults} == {
        "params.prompt", "params.steps", "params.size.width", "params.size.height", "params.tags.1.name",
        "params.other", "params.mode",
    }  # fmt: skip
    assert refused.value.task_type == "a.type"


@pytest.mark.parametrize("params", [{"prompt": "x", "steps": float("nan")}, {"prompt": None}, [], "text", None])
def test_odd_params_are_faults(registry: Registry, params: Any) -> None:
    """Whatever stands where the params should be, it is a fault like others."""
    with pytest.raises(InvalidParams):
        registered(registry, generate).validate(params)


def test_the_schema_agrees_with_the_check(registry: Registry) -> None:
    """What the published schema lets through, the check in the horse lets through too."""
    found = registered(registry, generate)
    validator = Draft202012Validator(found.schema())
    for extra in ({}, {"steps": 5.0}, {"size": None, "at": "2026-01-01T00:00:00Z"}):
        params = {"prompt": "", **extra}
        assert validator.is_valid(params)
        assert found.validate(params)


# Publishing and loading


def test_what_is_published(registry: Registry) -> None:
    """Published is what a submit needs: queue, packed policy, schema and the first line of the docstring."""
    registry.task("a.type", queue="gpu", timeout=60)(generate)
    published = json.loads(json.dumps(registry.published(), allow_nan=False))
    assert set(published) == {"a.type"}
    kind = published["a.type"]
    assert set(kind) == {"queue", "policy", "schema", "description"}
    assert (kind["queue"], kind["description"]) == ("gpu", "Make an image.")
    assert Policy.unpack(kind["policy"]) == Policy(timeout=60_000)


def test_a_packed_policy_is_short(registry: Registry) -> None:
    """The largest policy that is allowed still fits into two small fields of the task's hash."""
    found = registered(
        registry, generate, timeout=604_800, max_retries=1000, max_timeouts=1000, max_losses=1000, backoff=604_800,
        backoff_cap=604_800, retention=366 * 86_400, stall_timeout=604_799, extend_by=604_800, max_runtime=604_800,
    )  # fmt: skip
    assert all(len(part) < 64 for part in found.policy.pack_in_two())


def test_a_handler_without_docstring_has_no_description(registry: Registry) -> None:
    """Nothing is made up for a handler that says nothing."""

    def handler(ctx: Context) -> None: ...

    assert registered(registry, handler).published()["description"] == ""


def test_load_checks_what_was_registered(registry: Registry) -> None:
    """Loading refuses a handler whose schema cannot be published, before any task meets it."""

    def handler(ctx: Context, a: float = float("inf")) -> None: ...

    registry.task("a.type")(handler)
    with pytest.raises(InvalidValue, match=r"schema of a\.type\.properties\.a\.default"):
        registry.load([])


def test_load_imports_modules(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are imported in their order, and what they raise comes through."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loaded_first.py").write_text("VALUE = 1")
    (tmp_path / "loaded_second.py").write_text("import loaded_first; raise SystemExit(loaded_first.VALUE)")
    with pytest.raises(SystemExit):
        registry.load(["loaded_first", "loaded_second"])
