"""A handler's signature read as the schema of its params."""

import inspect
import typing
from collections.abc import Callable, Iterator
from inspect import Parameter
from types import SimpleNamespace
from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from .terms import refusal
from .values import shown

_CONFIG: Final = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)  # which may be a secret

_BY_POSITION: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_KEYWORD: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def check_handler(task_type: str, handler: object) -> None:
    """Refuse what cannot be called with a context and params by name. Raises InvalidHandler."""
    if not inspect.isfunction(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise refusal(task_type, "handler", "a function that returns its result", shown(handler))
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters or parameters[0].kind not in _BY_POSITION:
        raise refusal(task_type, "first parameter", "the context, by position", str(inspect.signature(handler)))
    for parameter in parameters[1:]:
        if parameter.kind not in _BY_KEYWORD:
            raise refusal(task_type, f"parameter {parameter.name}", "one that is passed by name", str(parameter))
        if parameter.annotation is Parameter.empty:
            raise refusal(task_type, f"parameter {parameter.name}", "a type annotation", "none")


def model_of_params(task_type: str, handler: Callable[..., Any]) -> type[BaseModel]:
    """Return the model that the params of a handler must fit. Raises InvalidHandler naming the parameter."""
    fields = {f"p{number}": field for number, field in enumerate(_fields(task_type, handler))}
    model: type[BaseModel] = cast(Any, create_model)(task_type, __config__=_CONFIG, **fields)
    return model


def _fields(task_type: str, handler: Callable[..., Any]) -> Iterator[tuple[Any, Any]]:
    parameters = list(inspect.signature(handler).parameters.values())[1:]
    for parameter in parameters:
        annotation = _annotation(task_type, handler, parameter)
        default = ... if parameter.default is Parameter.empty else parameter.default
        # The field has a name of its own, since pydantic refuses some that are fine for a parameter, like `_x`.
        yield Annotated[annotation, Field(alias=parameter.name)], default


def _annotation(task_type: str, handler: Callable[..., Any], parameter: Parameter) -> Any:
    """Return the type of a parameter, once pydantic has found a JSON form for it."""
    holder = SimpleNamespace(__annotations__={"it": parameter.annotation})
    names = inspect.unwrap(handler).__globals__
    try:
        annotation = typing.get_type_hints(holder, names, include_extras=True)["it"]
        TypeAdapter(annotation).json_schema()
    except Exception as error:  # user code stands in annotations, and pydantic has many errors of its own
        got = f"{parameter} ({type(error).__name__}: {str(error).partition('.')[0]})"
        raise refusal(task_type, f"parameter {parameter.name}", "a type with a JSON form", got) from error
    return annotation
