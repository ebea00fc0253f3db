"""What `docs/javascript.md` shows works as it stands there."""

import re
from pathlib import Path

from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from ghostless.statemachine import Policy
from playwright.sync_api import Page, expect
from web_tools import Hand, Served, repeating

DOCUMENT = Path(__file__).parents[2].joinpath("docs", "javascript.md").read_text()


def test_the_example_shows_a_task_to_its_end(
    page: Page, served: Served, client: Client, store: Store, hand: Hand
) -> None:
    """The page of the document submits its task, and shows its progress and its end."""
    kind = {"queue": "work", "policy": Policy().pack(), "schema": {"type": "object"}, "description": ""}
    store.publish_types({"video.thumbnails": kind})
    _open_example(page, served)
    expect(page.locator("#state")).to_have_text("PENDING")
    claimed = hand.start()
    expect(page.locator("#state")).to_have_text("PROCESSING")
    with repeating(lambda: store.progress(claimed.held, 0.25, "a quarter")):
        expect(page.locator("#done")).to_have_attribute("value", "0.25")
    hand.finish(claimed)
    expect(page.locator("#state")).to_have_text("SUCCESS")
    expect(page.locator("#trouble")).to_have_text("")
    (task,) = client.list().tasks
    assert {"url": "https://example.com/film.mp4"} == client.get(task.id).params


def test_the_example_says_what_went_wrong(page: Page, served: Served) -> None:
    """Of a type that nobody published no task is on its way."""
    _open_example(page, served)
    expect(page.locator("#trouble")).to_contain_text("video.thumbnails")
    expect(page.locator("#state")).to_have_text("unknown")


def _open_example(page: Page, served: Served) -> None:
    (example,) = re.findall(r"```html\n(.*?)```", DOCUMENT, re.DOTALL)
    page.route("**/example", lambda route: route.fulfill(content_type="text/html", body=example))
    page.goto(f"{served.url}/example")
