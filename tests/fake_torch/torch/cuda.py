"""Counts what a GPU's tensors hold; like torch's allocator it keeps memory until it is told to give it back."""

import os
import weakref

_held = _kept = 0


def is_available() -> bool:
    """Tell whether there is a GPU."""
    return bool(os.environ.get("FAKE_CUDA"))


def take(tensor: object, size: int) -> None:
    """Count a tensor for as long as it lives."""
    global _held, _kept
    _held += size
    _kept = max(_kept, _held)
    weakref.finalize(tensor, _give_back, size)


def _give_back(size: int) -> None:
    global _held
    _held -= size


def empty_cache() -> None:
    """Keep no more than what tensors hold, and tell how much that is."""
    global _kept
    before, _kept = _kept, _held
    print(f"torch: {_kept} bytes kept of {before}", flush=True)


def memory_reserved() -> int:
    """Return the bytes that no other process can have."""
    return _kept
