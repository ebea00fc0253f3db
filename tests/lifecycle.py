"""Handlers for whole lives with real workers: short backoff and small budgets, side effects noted in a file."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

from effects import task
from ghostless.jobs import Context
from pydantic import SecretStr

QUICK = {"backoff": 0.05, "backoff_cap": 0.1}


def _note(trace: Path, ctx: Context, what: str) -> None:
    with trace.open("a") as file:
        file.write(f"{ctx.attempt} {what} {os.getpid()} {time.time():.4f}\n")


@task("life.flaky", max_retries=3, **QUICK)
def flaky(ctx: Context, trace: Path, good_from: int = 2) -> dict[str, int]:
    """Fail until a given attempt."""
    _note(trace, ctx, "start")
    if ctx.attempt < good_from:
        raise ConnectionError(f"attempt {ctx.attempt} fails")
    return {"attempt": ctx.attempt}


@task("life.secret", max_retries=0)
def secret(ctx: Context, api_key: SecretStr, site: str, fails: bool = False) -> dict[str, Any]:
    """Tell of a secret what may be told."""
    print("with", api_key)
    if fails:
        raise ValueError(f"{site} refused {api_key!r}")
    return {"length": len(api_key.get_secret_value()), "site": site}


@task("life.doomed", max_retries=1, **QUICK)
def doomed(ctx: Context) -> None:
    """Fail always."""
    raise ValueError("no hope")


@task("life.fatal", max_losses=1, **QUICK)
@task("life.poison", max_losses=3, **QUICK)
def fatal(ctx: Context, trace: Path, kills: Literal["horse", "worker"] = "horse", deaths: int = 99) -> str:
    """Kill its own process, or its worker, in the first attempts."""
    _note(trace, ctx, "start")
    if ctx.attempt <= deaths:
        os.kill(os.getpid() if kills == "horse" else os.getppid(), signal.SIGKILL)
        time.sleep(3600)
    return "survived"


@task("life.spoils", max_retries=0, **QUICK)
def spoils(ctx: Context, trace: Path, how: Literal["asked", "lost", "fine"]) -> int:
    """Note its process, and spoil it or not."""
    _note(trace, ctx, how)
    if how == "asked":
        ctx.retire_process("a library is in a bad state")
    if how == "lost":
        try:
            raise RuntimeError("CUDA error: an illegal memory access")
        except RuntimeError as error:
            raise ValueError("no picture") from error
    return os.getpid()


@task("life.steps", **QUICK)
def steps(ctx: Context, trace: Path, count: int = 40, pause: float = 0.05) -> dict[str, int]:
    """Work in steps, each noted once it is done, with a checkpoint after each."""
    first: int = ctx.resumed_from or 0
    for step in range(first, count):
        time.sleep(pause)
        _note(trace, ctx, f"step-{step}")
        ctx.checkpoint(step + 1)
        ctx.progress((step + 1) / count, f"step {step + 1} of {count}")
    return {"first": first, "count": count}


@task("life.busy", timeout=60, max_timeouts=0, **QUICK)
def busy(ctx: Context, trace: Path, seconds: float = 3600.0, end: Path | None = None) -> str:
    """Note that it runs, ten times a second, and never ask whether to stop, for so long or until a file is there."""
    until = time.time() + seconds
    while time.time() < until and not (end and end.exists()):
        _note(trace, ctx, "runs")
        time.sleep(0.1)
    return "done"


@task("life.device", **QUICK)
def device(ctx: Context, seconds: float) -> dict[str, str | None]:
    """Tell after a while which GPU this process may use."""
    time.sleep(seconds)
    return {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")}


@task("life.talk", **QUICK)
def talk(ctx: Context, lines: int) -> None:
    """Print to both streams, and let a child do so too."""
    for number in range(lines):
        print(f"out {number}")
        print(f"err {number}", file=sys.stderr)
    subprocess.run(["echo", "child"], check=True)
    sys.stdout.write("no end")
    sys.stdout.write("\n")


@task("life.count", **QUICK)
def count(ctx: Context, lines: int, end: Path) -> None:
    """Print numbers, one a line, and wait until a file is there."""
    print(*range(lines), sep="\n")
    while not end.exists():
        time.sleep(0.02)


@task("life.litter", **QUICK)
def litter(ctx: Context) -> list[int]:
    """Leave an alarm, a signal mask, a child, an orphan and a child in a session of its own behind."""
    child = subprocess.Popen(["sleep", "3600"])
    apart = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    shell = subprocess.run(
        ["sh", "-c", "sleep 3600 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    signal.alarm(1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    return [child.pid, apart.pid, int(shell.stdout)]


@task("life.hold_the_interpreter", **QUICK)
def hold_the_interpreter(ctx: Context, seconds: int) -> None:
    """Let no other thread of this process run for so many seconds."""
    ctypes.PyDLL(None).sleep(seconds)


@task("life.once", **QUICK)
def once(ctx: Context, trace: Path) -> None:
    """Note the task's id and nothing else."""
    with trace.open("a") as file:
        file.write(f"{ctx.task_id}\n")


@task("life.until", max_losses=99, **QUICK)
def until(ctx: Context, trace: Path, end: Path) -> int:
    """Work in steps, with a checkpoint after each, until a file is there."""
    step: int = ctx.resumed_from or 0
    while not end.exists():
        step += 1
        _note(trace, ctx, f"step-{step}")
        ctx.checkpoint(step)
        time.sleep(0.02)
    return step


@task("life.span", **QUICK)
def span(ctx: Context, trace: Path, seconds: float) -> None:
    """Take some time in small pieces, and note when it began and when it ended, however it ended."""
    begun = time.time()
    try:
        while time.time() < begun + seconds:
            time.sleep(0.01)
            ctx.check()
    finally:
        with trace.open("a") as file:
            file.write(f"{ctx.task_id} {ctx.attempt} {begun:.4f} {time.time():.4f}\n")


@task("life.freezable", **QUICK)
def freezable(ctx: Context, trace: Path, end: Path) -> str:
    """Report without end in the first attempt; in the second report once, then say nothing until a file is there."""
    _note(trace, ctx, "start")
    while ctx.attempt == 1 and not end.exists():
        ctx.progress(0.1, "first")
        ctx.log("first")
        ctx.checkpoint("first")
        time.sleep(0.02)
    ctx.progress(0.5, "second")
    ctx.log("second")
    ctx.checkpoint("second")
    _note(trace, ctx, "quiet")
    while not end.exists():
        time.sleep(0.02)
    return f"attempt {ctx.attempt}"


@task("life.sum", max_losses=9, **QUICK)
def add_up(ctx: Context, trace: Path, own: int = 1, end: Path | None = None) -> int:
    """Add to a number of its own what the tasks returned that it depends on; wait for a file when one is named."""
    with trace.open("a") as file:
        file.write(f"{ctx.attempt} {ctx.task_id}\n")
    while end and not end.exists():
        ctx.check()
        time.sleep(0.02)
    return own + sum(ctx.results.values())


@task("life.swift", max_losses=1, **QUICK)
def swift(
    ctx: Context, trace: Path, end: Path | None = None, kills: bool = False, says: str = "", fails: bool = False
) -> str:
    """Note when it begins and when it ends. Between the two wait for a file, print, fail or die, when told so."""
    with trace.open("a") as file:
        file.write(f"{ctx.attempt} begins {ctx.task_id} {time.monotonic():.6f}\n")
    while end and not end.exists():
        time.sleep(0.005)
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)
    if says:
        print(says)
    if fails:
        raise ValueError("as told")
    with trace.open("a") as file:
        file.write(f"{ctx.attempt} ends {ctx.task_id} {time.monotonic():.6f}\n")
    return f"attempt {ctx.attempt}"
