"""The examples of docs/sse.md do what it says."""

import re
import subprocess
import threading
from collections.abc import Iterator

import pytest
from documents import examples
from ghostless.jobs.client import Client
from ghostless.jobs.messages import Claim, Claimed
from ghostless.jobs.store import Store
from ghostless.statemachine import Policy
from playwright.sync_api import Page
from web_tools import Hand, Served, repeating, submitted

DEV = "localhost:8000"
"""The server that the examples talk to."""

HANDLED = "image.generate"


@pytest.fixture
def published(store: Store) -> None:
    """The type that the examples submit."""
    kind = {"queue": "work", "policy": Policy().pack(), "schema": {"type": "object"}, "description": ""}
    store.publish_types({HANDLED: kind})


@pytest.fixture
def worker(served: Served, published: None, store: Store) -> Iterator[None]:
    """Run whatever is submitted."""
    over, hand = threading.Event(), Hand(store)

    def work() -> None:
        while not over.wait(0.1):
            claimed = store.claim(Claim.new("hand", ["work"], [HANDLED]))
            if isinstance(claimed, Claimed):
                hand.finish(claimed)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join()


def events(text: str) -> list[tuple[str, str]]:
    """Return which events some text shows, with the states."""
    return re.findall(r"^event: (\w+)|\"state\":\"(\w+)\"", text, re.MULTILINE)


@pytest.mark.usefixtures("worker")
def test_the_examples_with_curl(served: Served) -> None:
    """All of them, in order, in one shell; the first stream looks as it is shown."""
    script = "\n".join(f"echo '# {number}'\n{text}" for number, text in enumerate(examples("sse.md", "sh")))
    script = script.replace("http://", "").replace(DEV, served.url.removeprefix("http://"))
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60)
    assert 0 == done.returncode, done.stderr
    first, fetched, several, owners = re.split(r"^# \d\n", done.stdout, flags=re.MULTILINE)[1:]
    (shown,) = examples("sse.md", "text")
    assert events(shown) == events(first[first.index("retry: ") :])
    assert "204" == fetched.strip()
    assert [("end", "")] == events(several)[-1:]
    assert owners.startswith("retry: ")


@pytest.mark.usefixtures("published")
def test_the_example_in_a_browser(page: Page, served: Served, client: Client, store: Store) -> None:
    """The page shows the state that it fetched, then what happens, and is done with the end."""
    (html,) = examples("sse.md", "html")
    submitted(client, type=HANDLED, id="lighthouse")
    page.route(f"{served.url}/page", lambda route: route.fulfill(content_type="text/html", body=html))
    page.goto(f"{served.url}/page")
    page.wait_for_function("document.querySelector('output').textContent === 'PENDING'")
    claimed = Hand(store).start()
    page.wait_for_function("document.querySelector('output').textContent === 'PROCESSING'")
    with repeating(lambda: store.progress(claimed.held, 0.5, "half")):
        page.wait_for_function("document.querySelector('progress').value === 0.5")
    Hand(store).finish(claimed)
    page.wait_for_function("document.querySelector('output').textContent === 'SUCCESS'")
