"""Tensors: arrays that know their device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import cuda

uint8 = np.dtype(np.uint8)


@dataclass(frozen=True)
class device:  # noqa: N801 (torch's name)
    """A place where tensors are."""

    type: str

    def __str__(self) -> str:
        return self.type


CPU = device("cpu")


class Tensor(np.ndarray):
    """An array of numbers on a device."""

    device = CPU

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **wishes: Any) -> Any:
        places = {value.device for value in inputs if isinstance(value, Tensor)}
        if len(places) > 1:
            raise RuntimeError("Expected all tensors to be on the same device")
        plain = [np.asarray(value) for value in inputs]
        return placed(getattr(function, method)(*plain, **wishes), places.pop())

    def __array_finalize__(self, parent: Any) -> None:
        self.device = getattr(parent, "device", CPU) if isinstance(parent, Tensor) else CPU

    def to(self, wish: Any) -> "Tensor":
        """Return it on another device, or of another type."""
        if isinstance(wish, np.dtype):
            return placed(np.asarray(self).astype(wish), self.device)
        return placed(np.array(self), wish if isinstance(wish, device) else device(wish))

    def cpu(self) -> "Tensor":
        """Return it on the CPU."""
        return self.to("cpu")

    def numpy(self) -> np.ndarray:
        """Return the array, which must be on the CPU."""
        if self.device != CPU:
            raise TypeError("can't convert cuda device type tensor to numpy")
        return np.asarray(self)

    def new_tensor(self, values: Sequence[Any]) -> "Tensor":
        """Return other values on the same device."""
        return placed(np.array(values, np.float32), self.device)

    def amin(self, dim: tuple[int, ...], keepdim: bool) -> "Tensor":
        """Return the least along some axes."""
        return placed(np.asarray(self).min(axis=dim, keepdims=keepdim), self.device)

    def amax(self, dim: tuple[int, ...], keepdim: bool) -> "Tensor":
        """Return the greatest along some axes."""
        return placed(np.asarray(self).max(axis=dim, keepdims=keepdim), self.device)

    def clamp(self, min: float) -> "Tensor":  # noqa: A002 (torch's name)
        """Return it with nothing less than this."""
        return np.maximum(self, np.float32(min))

    def permute(self, *axes: int) -> "Tensor":
        """Return it with its axes in another order."""
        return placed(np.asarray(self).transpose(axes), self.device)


def placed(values: np.ndarray, place: device) -> Tensor:
    """Return values as a tensor on a device."""
    made = np.asarray(values).view(Tensor)
    made.device = place
    if place != CPU:
        cuda.take(made, made.nbytes)
    return made


def randn(*shape: int, generator: Any) -> Tensor:
    """Return random numbers of a seed, on the CPU."""
    return placed(np.random.default_rng(generator.seed).standard_normal(shape, np.float32), CPU)


def cat(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Return tensors joined along an axis."""
    return placed(np.concatenate([np.asarray(part) for part in parts], axis=dim), parts[0].device)


def from_numpy(values: np.ndarray) -> Tensor:
    """Return an array as a tensor on the CPU."""
    return placed(values, CPU)


def tanh(values: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return np.tanh(values)
