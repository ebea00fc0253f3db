"""The example of `docs/api.md` works in a browser as it stands there."""

from documents import examples
from ghostless.jobs.store import Store
from ghostless.statemachine import Policy
from playwright.sync_api import Page, expect
from web_tools import Hand, Served


def test_the_example_shows_a_task_to_its_end(page: Page, served: Served, store: Store, hand: Hand) -> None:
    """It says what is wrong of a type that nobody published; of one that there is it shows each state up to the end."""
    (html,) = examples("api.md", "html")
    page.route("**/example", lambda route: route.fulfill(content_type="text/html", body=html))
    shown = page.locator("output")
    page.goto(f"{served.url}/example")
    expect(shown).to_contain_text("unknown: ")
    kind = {"queue": "work", "policy": Policy().pack(), "schema": {"type": "object"}, "description": ""}
    store.publish_types({"video.thumbnails": kind})
    page.reload()
    expect(shown).to_have_text("PENDING")
    claimed = hand.start()
    expect(shown).to_have_text("PROCESSING")
    hand.finish(claimed)
    expect(shown).to_have_text("SUCCESS")
