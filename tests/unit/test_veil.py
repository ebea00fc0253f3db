"""Texts that only who has the key can read."""

import base64

from ghostless.web.veil import unveiled, veiled
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"), min_size=1))
def test_what_is_veiled_comes_back(text: str, key: str) -> None:
    """With the same key, and it never looks alike."""
    assert text == unveiled(veiled(text, key), key)
    assert veiled(text, key) != veiled(text, key)


def test_without_the_key_nothing_is_told() -> None:
    """Neither in plain text nor with another key."""
    text = "1795987574394 a-task-of-somebody-else"
    assert text not in unveiled(veiled(text, "key"), "another")
    assert text != unveiled(text, "key")


@given(st.text(st.characters(codec="latin-1")))
def test_whatever_is_no_veiled_text_says_nothing(text: str) -> None:
    """It raises nothing."""
    assert "" == unveiled(text, "key")


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_what_was_changed_says_nothing(place: int, change: int) -> None:
    """Else the answers to texts a little beside it would tell what is in it."""
    raw = bytearray(base64.urlsafe_b64decode(veiled("ab12.1795987574394-0", "key")))
    raw[place % len(raw)] ^= change
    assert "" == unveiled(base64.urlsafe_b64encode(raw).decode(), "key")
