"""What one process knows of tokens: asked once for all who want to know at the same time."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from ghostless.jobs.errors import RedisUnavailable
from ghostless.jobs.tokens import Sight
from ghostless.web import keyring
from ghostless.web.keyring import Keyring
from helpers import eventually, expect

MANY = 50


class SlowTokens:
    """Tokens that answer when the test says so, and count how often they are asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.error: Exception | None = None

    def look(self, token_id: str, _session_id: str = "") -> Sight:
        """Answer, at last."""
        self.asked.append(token_id)
        assert self.may_answer.wait(20)
        if self.error:
            raise self.error
        return Sight(None, "key", 1000)


@pytest.fixture
def tokens() -> SlowTokens:
    """The tokens in Redis."""
    return SlowTokens()


@pytest.fixture
def ring(tokens: SlowTokens) -> Keyring:
    """What a process knows of them."""
    return Keyring(tokens)  # type: ignore[arg-type]


@pytest.fixture
def crowd() -> Iterator[ThreadPoolExecutor]:
    """Those who ask together."""
    with ThreadPoolExecutor(MANY) as crowd:
        yield crowd


def test_one_looks_for_all(ring: Keyring, tokens: SlowTokens, crowd: ThreadPoolExecutor) -> None:
    """Who asks for a token that is being looked up waits for that answer; another token is looked up beside it."""
    answers = [crowd.submit(ring.look, "a") for _ in range(MANY - 1)]
    eventually(lambda: expect(tokens.asked))
    other = crowd.submit(ring.look, "b")
    eventually(lambda: expect(len(tokens.asked) == 2))
    tokens.may_answer.set()
    assert {"key"} == {answer.result(20).signing_key for answer in [*answers, other]}
    assert ["a", "b"] == tokens.asked


def test_a_failed_look_fails_for_all_and_is_forgotten(
    ring: Keyring, tokens: SlowTokens, crowd: ThreadPoolExecutor
) -> None:
    """Else each would wait for a time-out of its own, one after the other; the next one asks anew."""
    tokens.error = RedisUnavailable(TimeoutError())
    answers = [crowd.submit(ring.look, "a") for _ in range(MANY)]
    eventually(lambda: expect(tokens.asked and crowd._work_queue.empty()))
    tokens.may_answer.set()
    assert {RedisUnavailable} == {type(answer.exception(20)) for answer in answers}
    assert len(tokens.asked) < MANY
    tokens.error = None
    assert "key" == ring.look("a").signing_key


def test_what_is_known_is_asked_again_after_a_moment(
    ring: Keyring, tokens: SlowTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, and the time of Redis goes on meanwhile."""
    tokens.may_answer.set()
    assert 1000 <= ring.look("a").now <= ring.look("a").now
    assert ["a"] == tokens.asked
    monkeypatch.setattr(keyring, "FRESH", 0.0)
    ring.look("a")
    assert ["a", "a"] == tokens.asked
