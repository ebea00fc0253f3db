"""Handlers that stop, stall and run on in every way that the stop protocol and the clocks must deal with."""

import signal
import threading
import time
from pathlib import Path
from typing import Any, Literal

from effects import task
from ghostless.jobs import Context, TooLarge

ONCE = {"max_timeouts": 0, "max_retries": 0}
MEBIBYTE = 1024 * 1024


def _note(trace: Path, what: str) -> None:
    with trace.open("a") as file:
        file.write(f"{what}\n")


def _report(ctx: Context, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ctx.progress(0.5)
        time.sleep(0.1)


@task("halt.reports", stall_timeout=1, timeout=60, **ONCE)
def reports(ctx: Context, seconds: float) -> str:
    """Report ten times a second."""
    _report(ctx, seconds)
    return "done"


@task("halt.silent", stall_timeout=1, timeout=60, **ONCE)
def silent(ctx: Context) -> None:
    """Report once, and then print and log, which is no progress."""
    ctx.progress(0.1)
    while True:
        ctx.log("still here")
        print("still here")
        time.sleep(0.1)


@task("halt.stages", stall_timeout=1, timeout=60, **ONCE)
def stages(ctx: Context) -> None:
    """Report by a stage and by checkpoints alone."""
    ctx.stage("first")
    for number in range(3):
        time.sleep(0.6)
        ctx.checkpoint(number)


def _load_slowly() -> str:
    time.sleep(1.5)
    return "loaded"


@task("halt.slow_setup", stall_timeout=1, timeout=60, setup=_load_slowly, **ONCE)
def slow_setup(ctx: Context) -> Any:
    """Need longer for the setup than the handler may be silent."""
    return ctx.model


def _hang() -> None:
    time.sleep(3600)


@task("halt.setup_hangs", timeout=1, setup=_hang, **ONCE)
def setup_hangs(ctx: Context) -> None:
    """Never get past the setup."""


@task("halt.extended", timeout=1, extend_by=1, max_runtime=30, **ONCE)
def extended(ctx: Context, seconds: float, silence: float = 0) -> str:
    """Report for longer than the timeout, or be silent."""
    _report(ctx, seconds)
    time.sleep(silence)
    return "done"


@task("halt.endless", timeout=1, extend_by=1, max_runtime=2.5, **ONCE)
def endless(ctx: Context) -> None:
    """Report for ever."""
    _report(ctx, 3600)


@task("halt.deaf", timeout=1, **ONCE)
def deaf(ctx: Context, trace: Path, how: Literal["blocked", "ignored", "thread"]) -> None:
    """Keep the signal that stops a handler away, or wait for a thread that it does not reach."""
    if how == "blocked":
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    elif how == "ignored":
        for alarm in (signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM):
            signal.signal(alarm, signal.SIG_IGN)
    thread = threading.Thread(target=_tick, args=(trace, how))
    thread.start()
    thread.join()


def _tick(trace: Path, what: str) -> None:
    while True:
        _note(trace, what)
        time.sleep(0.05)


@task("halt.saves", timeout=60, **ONCE)
def saves(ctx: Context, trace: Path) -> Any:
    """Save the largest checkpoint that is kept, try a larger one, and hang; tell what was found when resumed."""
    if ctx.resumed_from is not None:
        return {"attempt": ctx.attempt, "found": len(ctx.resumed_from)}
    ctx.checkpoint("x" * (MEBIBYTE - 2))
    try:
        ctx.checkpoint("x" * (MEBIBYTE - 1))
    except TooLarge as error:
        _note(trace, str(error))
    time.sleep(3600)
    return None


@task(
    "halt.tidy", timeout=60, teardown=lambda model: print(f"torn down {model}", flush=True), setup=lambda: "m", **ONCE
)
def tidy(ctx: Context, trace: Path) -> None:
    """Note when it is cleaned up."""
    _note(trace, "begun")
    try:
        time.sleep(3600)
    finally:
        _note(trace, "cleaned up")


@task("halt.saving", timeout=60, **ONCE)
def saving(ctx: Context) -> None:
    """Save a checkpoint all the time."""
    for number in range(100_000):
        ctx.checkpoint(number)
        time.sleep(0.02)
