"""Handlers whose arguments pick how they end; tests run them in real horses and workers.

Each logs "started" first, so that a test can wait for the handler instead of guessing.
"""

import asyncio
import collections
import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

from effects import task
from ghostless.jobs import Context, RetryLater, TaskStopped
from ghostless.jobs.registry import TaskType, registry

IMPORTED_IN = os.getpid()


class NeverAgain(Exception):
    """An exception that its task type never retries."""


class Unreadable(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unspeakable:
    """A value that cannot say what it is either."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class TwoArguments(Exception):
    """An exception that cannot be made from its message."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


@task("test.echo")
def echo(ctx: Context, value: Any = None, note: str = "") -> Any:
    """Return the value.

    The second paragraph of a docstring is not published.
    """
    ctx.log("started")
    return value


@task("test.process")
def process(ctx: Context) -> dict[str, Any]:
    """Tell which process imported this module, and which one runs it."""
    return {
        "imported_in": IMPORTED_IN,
        "pid": os.getpid(),
        "thread": threading.current_thread() is threading.main_thread(),
        "folder": str(Path.cwd()),
        "input": sys.stdin.read(),
    }


Failure = Literal[
    "plain", "exit", "interrupt", "base", "long", "unreadable", "two arguments", "later", "later for ever", "never",
    "surrogate", "lines", "deep", "memory", "stopped", "params", "bytes", "value",
]  # fmt: skip


def _failure(how: Failure, seconds: float) -> BaseException:
    return {
        "plain": ValueError("this is what went wrong"),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "base": BaseException("not even an Exception"),
        "long": ValueError("head" + "x" * 1_000_000 + "tail"),
        "unreadable": Unreadable(),
        "two arguments": TwoArguments("one", "two"),
        "later": RetryLater(seconds),
        "later for ever": RetryLater(float("nan")),
        "never": NeverAgain("no use"),
        "surrogate": ValueError("half a pair: \ud800"),
        "lines": ValueError("first\nsecond\r\nthird"),
        "memory": MemoryError(),
        "bytes": ValueError(b"\xff", {1: None}),
        "value": ValueError(Unspeakable(), 2),
        "stopped": TaskStopped("the handler made this up"),
    }[how]


def _recurse() -> None:
    _recurse()


def _echo_type() -> TaskType:
    found = registry.get("test.echo")
    assert found
    return found


@task("test.raise", never_retry=(NeverAgain,))
def fail(ctx: Context, how: Failure = "plain", seconds: float = 1.0) -> None:
    """Raise something."""
    ctx.log("started")
    if how == "deep":
        _recurse()
    if how == "params":
        _echo_type().validate({"wrong": 1})
    raise _failure(how, seconds)


@task("test.result")
def result(ctx: Context, what: str) -> Any:
    """Return something that is no result."""
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    return {
        "nan": {"scores": [1.0, float("nan")]},
        "set": {"images": [{"tags": {1, 2}}]},
        "surrogate": {"text": "\ud800"},
        "large": "x" * (1024 * 1024),
        "cycle": cycle,
        "deep": deep,
        "lambda": lambda: None,
        "key": {(1, 2): 3},
        "file": sys.stdin,
        "generator": (number for number in range(3)),
        "bytes": bytes(200 << 20),
        "unspeakable": {"images": [Unspeakable()]},
        "unspeakable key": {Unspeakable(): 1},
    }[what]


def _sleep(_ctx: Context) -> None:
    time.sleep(3600)


def _spin(_ctx: Context) -> None:
    while True:
        pass


def _check(ctx: Context) -> None:
    while True:
        ctx.check()
        time.sleep(0.01)


def _progress(ctx: Context) -> None:
    while True:
        ctx.progress(0.5)
        time.sleep(0.01)


def _checkpoint(ctx: Context) -> None:
    for count in itertools.count(1):
        ctx.checkpoint(count)
        time.sleep(0.01)


def _swallow(ctx: Context) -> None:
    with contextlib.suppress(TaskStopped):
        ctx.log("inside")
        time.sleep(3600)


def _stubborn(ctx: Context) -> None:
    while True:
        with contextlib.suppress(BaseException):
            ctx.log("here again")
            time.sleep(3600)


def _native(_ctx: Context) -> None:
    """Hold the GIL in a loop of C that looks at no signal."""
    collections.deque(itertools.repeat(0, 3 * 10**10), maxlen=0)


def _gil(_ctx: Context) -> None:
    """Hold the GIL in a call that a signal ends early."""
    while True:
        ctypes.PyDLL(None).sleep(40)


def _lock(_ctx: Context) -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


_HANGS = {
    "check": _check,
    "progress": _progress,
    "checkpoint": _checkpoint,
    "sleep": _sleep,
    "spin": _spin,
    "swallow": _swallow,
    "stubborn": _stubborn,
    "native": _native,
    "gil": _gil,
    "lock": _lock,
}

Hang = Literal["check", "progress", "checkpoint", "sleep", "spin", "swallow", "stubborn", "native", "gil", "lock"]


@task("test.hang")
def hang(ctx: Context, how: Hang = "check") -> str:
    """Run until stopped, by the means that `how` leaves open."""
    ctx.log("started")
    _HANGS[how](ctx)
    return "returned all the same"


@task("test.chatty")
def chatty(ctx: Context) -> None:
    """Send as many frames as possible, for ever; only a forced stop ends it."""
    ctx.log("started")
    while True:
        ctx.log("x" * 2000)


@task("test.die")
def die(ctx: Context, how: Literal["kill", "exit", "segfault", "worker"] = "kill") -> None:
    """Take the process down, or its worker with it."""
    ctx.log("started")
    if how == "worker":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(3600)
    elif how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGSEGV if how == "segfault" else signal.SIGKILL)


@task("test.steps")
def steps(ctx: Context, count: int = 10, pause: float = 0.05, trace: Path | None = None) -> dict[str, Any]:
    """Work in steps with a checkpoint after each, going on where the last attempt stopped."""
    first = ctx.resumed_from or 0
    ctx.log("started")
    for step in range(first, count):
        if trace:
            with trace.open("a") as file:
                file.write(f"{ctx.attempt} {step} {time.time():.3f}\n")
        time.sleep(pause)
        ctx.checkpoint(step + 1)
        ctx.progress((step + 1) / count, f"step {step + 1}")
    return {"first": first, "count": count}


@task("test.report")
def report(ctx: Context, folder: Path | None = None) -> dict[str, Any]:
    """Use every call of the context once."""
    ctx.log("started")
    ctx.progress(0.25, "a quarter")
    ctx.stage("watermark")
    ctx.checkpoint({"step": 1})
    ctx.check()
    source = ctx.tmpdir / "source.txt"
    source.write_text("from a file")
    return {
        "task_id": ctx.task_id,
        "attempt": ctx.attempt,
        "model": ctx.model,
        "resumed_from": ctx.resumed_from,
        "bytes": ctx.artifact("bytes.bin", b"from memory"),
        "file": ctx.artifact("file.txt", source),
    }


def _load_model() -> dict[str, int]:
    return {"loaded": time.monotonic_ns()}


def _unload_model(model: dict[str, int]) -> None:
    print(f"unloaded {model['loaded']}", flush=True)


@task("test.model", setup=_load_model, teardown=_unload_model)
def model(ctx: Context) -> Any:
    """Return what the setup returned."""
    return ctx.model


@task("test.setup")
def setup_less(ctx: Context) -> Any:
    """Return the model of a type without setup."""
    return ctx.model


SETUPS: list[int] = []


def _load_at_second_try() -> str:
    SETUPS.append(1)
    if len(SETUPS) == 1:
        raise SystemExit("no GPU")
    return "loaded"


def _raise(_model: object) -> None:
    raise RuntimeError("teardown failed")


@task("test.flaky_model", setup=_load_at_second_try, teardown=_raise)
def flaky_model(ctx: Context) -> Any:
    """Return what the setup returned, at its second try."""
    return ctx.model


def _hang_in_setup() -> None:
    Path("setup-runs").touch()
    time.sleep(3600)


@task("test.slow_model", setup=_hang_in_setup)
def slow_model(ctx: Context) -> None:
    """Never get past the setup."""


@task("test.async")
async def asynchronous(ctx: Context, how: Literal["echo", "raise", "hang", "group", "check"] = "echo") -> str:
    """Be a coroutine."""
    ctx.log("started")
    if how == "raise":
        raise ValueError("from a coroutine")
    if how == "hang":
        try:
            ctx.log("inside")
            await asyncio.sleep(3600)
        finally:
            ctx.log("cleaned up")
    if how == "group":
        async with asyncio.TaskGroup() as group:
            group.create_task(_poll(ctx))
    if how == "check":
        await _poll(ctx)
    await asyncio.sleep(0)
    return "from a coroutine"


async def _poll(ctx: Context) -> None:
    while True:
        ctx.check()
        await asyncio.sleep(0.01)


@task("test.thread")
def thread(ctx: Context) -> str:
    """Leave a thread behind that goes on reporting."""

    def go_on() -> None:
        while True:
            ctx.log("still here")

    threading.Thread(target=go_on, daemon=True).start()
    return "left"


@task("test.children")
def children(ctx: Context, how: Hang = "sleep") -> None:
    """Start a child, a grandchild and a child in a session of its own, log their pids, and hang."""
    shell = subprocess.Popen(["sh", "-c", "sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    apart = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    assert shell.stdout
    ctx.log(f"{os.getpid()} {shell.pid} {shell.stdout.readline().strip()} {apart.pid}")
    hang(ctx, how)


@task("test.fork")
def fork(ctx: Context) -> str:
    """Fork a child that tries to report, and tell how that went."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ctx.log("from the child")
        except OSError:
            os.write(writing, b"refused")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


@task("test.signals")
def signals(ctx: Context) -> str:
    """Take the signal that stops a handler, and go to a folder that vanishes."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.chdir(ctx.tmpdir)
    return "taken"
