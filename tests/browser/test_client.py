"""The JavaScript client in a page of the server, with nothing in between."""

from ghostless.jobs.client import Client
from ghostless.jobs.store import Store
from following import Follower
from helpers import eventually, expect
from playwright.sync_api import Page
from web_tools import Hand, Served, repeating, submitted



def test_a_page_sees_a_task_from_its_first_move_to_its_last(
    page: Page, served: Served, client: Client, hand: Hand
) -> None:
    """Whoever comes late is told what happened, then what happens; the watch ends with the task."""
    task_id = submitted(client)
    claimed = hand.start()
    follower = Follower(page, served.url).follow([task_id]).awaits(task_id, "PENDING", "PROCESSING")
    hand.finish(claimed)
    told = follower.awaits_end(client, task_id)
    assert [{"id": task_id, "state": "SUCCESS", "status": None}] == told["ends"]
    assert ["live"] == [connection["status"] for connection in told["connections"]]
