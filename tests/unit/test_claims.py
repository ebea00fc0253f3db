"""What a worker claims: what it was told at the end of a task is not asked again."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from ghostless.jobs.claims import Claims
from ghostless.jobs.messages import Claim, ClaimReply, NothingToClaim, PlainJob

ASKED = PlainJob("q", "asked for")


@pytest.fixture
def claims() -> Claims:
    """Claims on a store that always has a job."""
    store = SimpleNamespace(claim=lambda claim: ASKED)
    return Claims(store, "worker:w", give_up=lambda: False)  # type: ignore[arg-type]


@pytest.fixture
def wish() -> Callable[[], Claim]:
    """What the worker would ask for."""
    return lambda: Claim.new("w", ["q"], ["t"])


@pytest.mark.parametrize("told", [PlainJob("q", "told"), NothingToClaim("empty"), NothingToClaim("suspended")])
def test_an_answer_that_was_kept_is_taken_once(claims: Claims, wish: Callable[[], Claim], told: ClaimReply) -> None:
    """That there is nothing is an answer too: a hint tells when that changes."""
    claims.keep(told)
    assert [told, ASKED] == [claims.take(wish), claims.take(wish)]


@pytest.mark.parametrize("told", [None, NothingToClaim("more"), NothingToClaim("damaged")])
def test_where_there_may_be_a_task_it_is_asked_again(
    claims: Claims, wish: Callable[[], Claim], told: ClaimReply | None
) -> None:
    """What was passed over or damaged says nothing of what lies behind it."""
    claims.keep(told)
    assert ASKED == claims.take(wish)


@pytest.mark.parametrize("told", [NothingToClaim("more"), NothingToClaim("damaged")])
def test_a_claim_goes_on_behind_what_it_passed_over(wish: Callable[[], Claim], told: ClaimReply) -> None:
    """No worker waits for a hint in front of a task that stands behind damaged ones."""
    answers, tokens = iter([told, told, ASKED]), list[str]()

    def answer(claim: Claim) -> ClaimReply:
        tokens.append(claim.token)
        return next(answers)

    store = SimpleNamespace(claim=answer)
    assert ASKED == Claims(store, "worker:w", give_up=lambda: False).take(wish)  # type: ignore[arg-type]
    assert 3 == len(set(tokens)), "or what could not be ended would be answered again and again"
