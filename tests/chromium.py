"""A headless Chromium for tests: the system's own, with an empty profile, and gone when the tests are."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from helpers import die_with_the_tests, eventually
from playwright.sync_api import Browser, Page, sync_playwright

HOW_TO_GET_IT = "no chromium on PATH: `apt install chromium`"

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root in a container can have none
    "--disable-dev-shm-usage",  # a container's /dev/shm is too small
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-domain-reliability",
    "--disable-breakpad",
    # Tabs of a test are never in front; their timers must run all the same.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    # Nothing beyond this machine is reached, whatever a page asks for.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)


def binary() -> str | None:
    """Return the path of the browser's program, None when there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def chromium(profile: Path) -> Iterator[str]:
    """Run a browser with this empty folder as its profile; yield the address at which it takes orders.

    Whatever happens, all its processes are ended.
    """
    process = subprocess.Popen(
        [binary() or "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_the_tests,
    )
    try:
        yield f"http://127.0.0.1:{_port(profile)}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)


@contextmanager
def driven(address: str) -> Iterator[Browser]:
    """Give orders to a browser. Playwright would start one itself, but tells nobody its process id."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(address)
        yield browser
        browser.close()


def open_empty(page: Page, origin: str) -> None:
    """Open an empty page of a server; scripts that a test runs in it may ask that server for anything.

    The pages of the product forbid that (Content-Security-Policy).
    """
    page.route(f"{origin}/empty", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>"))
    page.goto(f"{origin}/empty")


def _port(profile: Path) -> int:
    """Return the port of the loopback on which the browser takes orders, once it has opened it."""
    told = profile / "DevToolsActivePort"

    def read() -> int:
        assert told.exists(), "the browser did not start"
        lines = told.read_text().splitlines()
        assert lines, "the browser did not tell its port"
        return int(lines[0])

    return eventually(read, 30)
