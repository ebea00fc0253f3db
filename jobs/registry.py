"""Task types: the `@task` decorator, the handlers it registers, and what is published about them."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeVar, Unpack

from pydantic import BaseModel, ValidationError

from ..statemachine import Policy
from .errors import Fault, InvalidHandler, InvalidParams
from .recurrence import Misfire, Overlap
from .signature import check_handler, model_of_params
from .terms import Terms, check_name, check_never_retry, check_setup, policy_of
from .timetable import Timetable, check_runs_alone, timetable_of
from .values import to_json

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True)
class TaskType:
    """A named handler with its policy."""

    name: str
    handler: Callable[..., Any]
    queue: str
    policy: Policy
    never_retry: tuple[type[Exception], ...]
    setup: Callable[[], object] | None
    teardown: Callable[[Any], None] | None
    timetable: Timetable | None = None

    @cached_property
    def _model(self) -> type[BaseModel]:
        return model_of_params(self.name, self.handler)

    @cached_property
    def _fields(self) -> dict[str, str]:
        """Name of the param -> name of the model's field for it."""
        return {field.alias or name: name for name, field in self._model.model_fields.items()}

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the params. Raises InvalidHandler when the handler's annotations have none."""
        return self._model.model_json_schema(mode="validation")

    def validate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for the handler. Raises InvalidParams naming every fault."""
        try:
            valid = self._model.model_validate(params)
        except ValidationError as error:
            faults = [Fault(_path(fault["loc"]), fault["msg"]) for fault in error.errors(include_url=False)]
            raise InvalidParams(self.name, faults) from error
        return {name: getattr(valid, field) for name, field in self._fields.items()}

    def published(self) -> dict[str, Any]:
        """Return what others need to know to submit this type, as JSON values."""
        description = (inspect.getdoc(self.handler) or "").partition("\n")[0]
        return {
            "queue": self.queue,
            "policy": self.policy.pack(),
            "schema": self.schema(),
            "description": description,
            **({"schedule": asdict(self.timetable)} if self.timetable else {}),
        }


def _path(location: Sequence[int | str]) -> str:
    return ".".join(["params", *map(str, location)])


class Registry:
    """Task types by name."""

    def __init__(self) -> None:
        self._types: dict[str, TaskType] = {}

    def __iter__(self) -> Iterator[TaskType]:
        return iter(self._types.values())

    def get(self, name: str) -> TaskType | None:
        """Return the type of this name, if there is one."""
        return self._types.get(name)

    def load(self, modules: Iterable[str]) -> None:
        """Import modules, so that their handlers register, and check what they registered.

        Raises whatever a module raises, InvalidHandler, or InvalidValue for a default that JSON has no form for.
        """
        for module in modules:
            importlib.import_module(module)
        for task_type in self:
            to_json(f"schema of {task_type.name}", task_type.schema())

    def published(self) -> dict[str, dict[str, Any]]:
        """Return what is published about every type, by name."""
        return {task_type.name: task_type.published() for task_type in self}

    def task(
        self,
        name: str,
        *,
        queue: str = "default",
        never_retry: tuple[type[Exception], ...] = (),
        setup: Callable[[], object] | None = None,
        teardown: Callable[[Any], None] | None = None,
        cron: str | None = None,
        tz: str | None = None,
        misfire: Misfire | None = None,
        overlap: Overlap | None = None,
        **terms: Unpack[Terms],
    ) -> Callable[[Handler], Handler]:
        """Register the decorated function as the handler of the task type `name`; the function stays as it is.

        Its first parameter is the Context; the others, which must be annotated, are the params of a task. Times are
        seconds; terms that are not given are those of `Policy()`. `timeout` is the longest run of one attempt, its
        setup included, from 0.001 to 604800; `backoff` the base and `backoff_cap` the longest of the pauses between
        attempts, from 0 to 604800; `retention` how long a finished task is kept, from 60 to 31622400. `max_retries`,
        `max_timeouts` and `max_losses` are how many further attempts follow failures, timeouts and lost processes,
        from 0 to 1000. `Terms` tells of `stall_timeout`, `extend_by` and `max_runtime`.

        With `cron` the task runs by itself, in the time zone `tz` (UTC when not given): publishing the type registers
        a schedule of its name. `misfire` says what becomes of runs that no scheduler was there for, "skip", "once" (the
        default) or "all"; `overlap` whether one may begin before the last is over, "allow" (the default) or "skip".
        All params of the handler need defaults then.

        Exceptions of `never_retry` are final. `setup` runs once a process, and what it returns is `ctx.model`;
        `teardown` gets that before the process ends. Raises InvalidHandler for whatever cannot be used.
        """
        check_name(name, "name", name)
        check_name(name, "queue", queue)
        policy = policy_of(name, terms)
        check_never_retry(name, never_retry)
        check_setup(name, "setup", setup)
        check_setup(name, "teardown", teardown)
        timetable = timetable_of(name, cron, tz, misfire, overlap)

        def register(handler: Handler) -> Handler:
            self._add(TaskType(name, handler, queue, policy, never_retry, setup, teardown, timetable))
            return handler

        return register

    def _add(self, task_type: TaskType) -> None:
        check_handler(task_type.name, task_type.handler)
        if task_type.timetable:
            check_runs_alone(task_type.name, task_type.handler)
        there = self._types.get(task_type.name)
        if there is not None:
            both = f"{_place(there.handler)} and {_place(task_type.handler)}"
            raise InvalidHandler(f"task type {task_type.name!r}: two handlers have this name, {both}")
        self._types[task_type.name] = task_type


def _place(handler: Callable[..., Any]) -> str:
    return f"{handler.__module__}.{handler.__qualname__}"


registry = Registry()
"""Where `@task` registers."""

task = registry.task
