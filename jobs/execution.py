"""Runs one attempt's handler and says how it ended, whatever the handler did."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .attempt import Attempt
from .context import Context
from .errors import InvalidParams, TaskStopped, TooLarge
from .failure import describe, describe_error, message_of, traceback_of
from .frames import Frame
from .processes import end, has_children, offspring
from .registry import Registry, TaskType
from .values import InvalidValue, to_json


class _Refused(Exception):
    """The attempt failed for a reason that another attempt would meet again; the cause is the error."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _SetupFailed(Exception):
    """The setup of the task type raised; the cause is the error."""


class Runner:
    """Runs attempts one after another; keeps what the setup of each type returned.

    `send` sends a frame to the worker: it is to know that a setup runs, also when that kills the process.
    """

    def __init__(self, types: Registry, artifacts: Path, send: Callable[[Frame], None]) -> None:
        self._types, self._artifacts, self._send = types, artifacts, send
        self._models: dict[str, object] = {}
        self._helpers = offspring(os.getpid())  # started by modules and setups; they belong to the horse
        self._threads = set(threading.enumerate())  # likewise

    def run(self, attempt: Attempt, order: Frame) -> Mapping[str, Any]:
        """Run one attempt as the worker ordered it; return the frame that says how it ended. Raises nothing."""
        self._threads = set(threading.enumerate())
        task_type = self._types.get(order["type"])
        if task_type is None:
            names = ", ".join(sorted(known.name for known in self._types)) or "none"
            return describe("unknown_type", f"no handler for {order['type']!r} here; the handlers are: {names}")
        try:
            return {"kind": "returned", "result": self._result(task_type, attempt, order)}
        except BaseException as error:
            return _ending(error, task_type, attempt)

    def preload(self, name: str) -> None:
        """Run the setup of a type before any task of it; tell the worker when it failed. Raises nothing of its own."""
        task_type = self._types.get(name)
        try:
            if task_type and name not in self._models:
                self._set_up(task_type, _call)
        except _SetupFailed as failure:
            error = failure.__cause__ or failure
            self._send({"kind": "setup failed", "message": message_of(error), "traceback": traceback_of(error)})

    def end_what_handlers_started(self) -> None:
        """Kill every process that a handler started and left behind; helpers belong into a setup."""
        if has_children():
            end(offspring(os.getpid()) - self._helpers)

    def threads_left(self) -> int:
        """Return how many threads the handler started that still run: nothing can end them but the process' end."""
        return len(set(threading.enumerate()) - self._threads)

    def tear_down(self) -> list[BaseException]:
        """Run the teardown of each type that was set up; return what they raised."""
        return [error for name, model in self._models.items() if (error := self._torn_down(name, model))]

    def _result(self, task_type: TaskType, attempt: Attempt, order: Frame) -> str:
        params = _valid_params(attempt, task_type, order["params"])
        context = Context(
            attempt,
            model=self._model(attempt, task_type),
            resumed_from=order["checkpoint"],
            tmpdir=order["tmpdir"],
            artifacts=self._artifacts,
            results=order.get("results", {}),  # a worker that runs an older version sends none
        )
        if not order.get("is_timed"):  # the worker waits for word; one of an older version always does
            attempt.send("started")
        result = attempt.call(_await_or_return, task_type.handler, context, params)
        try:
            return to_json("result", result)
        except (InvalidValue, TooLarge) as error:
            raise _Refused("bad_result") from error

    def _model(self, attempt: Attempt, task_type: TaskType) -> object:
        if task_type.name not in self._models:
            self._set_up(task_type, attempt.call)
        return self._models[task_type.name]

    def _set_up(self, task_type: TaskType, call: Callable[[Callable[[], object]], object]) -> None:
        self._send({"kind": "setup begun", "type": task_type.name})
        self._models[task_type.name] = _model_of(task_type, call)
        if task_type.setup:
            self._helpers = offspring(os.getpid())
            self._threads = set(threading.enumerate())
        self._send({"kind": "setup done", "type": task_type.name})

    def _torn_down(self, name: str, model: object) -> BaseException | None:
        task_type = self._types.get(name)
        if task_type is None or task_type.teardown is None:
            return None
        try:
            task_type.teardown(model)
        except BaseException as error:
            return error
        return None


def _valid_params(attempt: Attempt, task_type: TaskType, params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return attempt.call(task_type.validate, params)
    except InvalidParams as error:
        raise _Refused("invalid_params") from error


def _model_of(task_type: TaskType, call: Callable[[Callable[[], object]], object]) -> object:
    if task_type.setup is None:
        return None
    try:
        return call(task_type.setup)
    except TaskStopped:
        raise
    except BaseException as error:
        raise _SetupFailed from error


def _call(setup: Callable[[], object]) -> object:
    """Call a setup of which no attempt is waiting: nothing asks it to stop."""
    return setup()


def _await_or_return(handler: Callable[..., Any], context: Context, params: dict[str, Any]) -> object:
    value = handler(context, **params)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _ending(error: BaseException, task_type: TaskType, attempt: Attempt) -> Mapping[str, Any]:
    """Decide how an attempt ended that did not return a result."""
    cause = error.__cause__ or error
    if _is_stop(error) and attempt.stop_asked is not None:
        return {
            "kind": "stopped",
            "why": attempt.stop_asked,
            "checkpointed": attempt.has_checkpoint,
            "interrupted": attempt.is_interrupted,
        }
    if isinstance(error, _Refused):
        return describe(error.reason, message_of(cause))
    reason, prefix = "exception", ""
    if isinstance(error, _SetupFailed):
        prefix, error = f"setup of {task_type.name} failed: ", cause
    elif isinstance(error, SystemExit):  # who wants the process to end counts as one whose process did
        reason, prefix = "crashed", "the handler wanted its process to end: "
    return describe_error(error, reason, prefix, retryable=not isinstance(error, task_type.never_retry))


def _is_stop(error: BaseException) -> bool:
    """Tell whether nothing but a stop was raised; a TaskGroup wraps it."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(TaskStopped)[1] is None
    return isinstance(error, TaskStopped)
