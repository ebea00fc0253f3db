"""Texts that tell nothing to those who hold them, and that nobody else can make: for cursors, which may name anything.

A cursor that could be changed would tell something after all: by what is answered to a place close to it.
"""

import base64
import hashlib
import hmac
import secrets

_NONCE = 16
_TAG = 16


def veiled(text: str, key: str) -> str:
    """Return a text that only who has the key can read; another one each time."""
    nonce = secrets.token_bytes(_NONCE)
    mixed = nonce + _mixed(text.encode(), key, nonce)
    return base64.urlsafe_b64encode(_tag(mixed, key) + mixed).decode()


def unveiled(text: str, key: str) -> str:
    """Return what was veiled with this key; "" for everything else."""
    try:
        raw = base64.urlsafe_b64decode(text.encode())
    except ValueError:
        return ""
    tag, mixed = raw[:_TAG], raw[_TAG:]
    if not secrets.compare_digest(tag, _tag(mixed, key)):
        return ""
    return _mixed(mixed[_NONCE:], key, mixed[:_NONCE]).decode()


def _mixed(data: bytes, key: str, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(key.encode() + nonce).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def _tag(mixed: bytes, key: str) -> bytes:
    return hmac.digest(f"veil {key}".encode(), mixed, "sha256")[:_TAG]
