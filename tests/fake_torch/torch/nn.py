"""Layers with shapes as in torch, and the simplest values that depend on what goes in."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from .tensor import CPU, Tensor, placed


class Module:
    """Something with weights, on a device."""

    weight: Tensor

    def __call__(self, *given: Any) -> Any:
        return self.forward(*given)  # type: ignore[attr-defined]

    def modules(self) -> Iterator["Module"]:
        """Yield this one and those in it."""
        yield self
        for part in vars(self).values():
            if isinstance(part, Module):
                yield from part.modules()

    def eval(self) -> "Module":
        """Do nothing."""
        return self

    def requires_grad_(self, wish: bool) -> "Module":
        """Do nothing."""
        return self

    def to(self, place: str) -> "Module":
        """Move all weights to a device."""
        for part in self.modules():
            if "weight" in vars(part):
                part.weight = part.weight.to(place)
        return self

    def cpu(self) -> "Module":
        """Move all weights to the CPU."""
        return self.to("cpu")


class Conv2d(Module):
    """Mixes channels, and takes each so many points."""

    def __init__(self, given: int, made: int, size: int, stride: int, padding: int, padding_mode: str) -> None:
        self.weight, self._stride = _weights(made, given), stride

    def forward(self, picture: Tensor) -> Tensor:
        """Return the picture with other channels."""
        return _mixed(picture[:, :, :: self._stride, :: self._stride], self.weight, "oc,bchw->bohw")


class Linear(Module):
    """Mixes numbers."""

    def __init__(self, given: int, made: int) -> None:
        self.weight = _weights(made, given)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return other numbers."""
        return _mixed(numbers, self.weight, "oc,bc->bo")


class SiLU(Module):
    """A curve."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the values bent."""
        return functional.silu(values)


class Upsample(Module):
    """Makes a picture larger."""

    def __init__(self, scale_factor: int, mode: str) -> None:
        self._scale = scale_factor

    def forward(self, picture: Tensor) -> Tensor:
        """Return the picture with each point repeated."""
        height, width = picture.shape[-2:]
        return _resized(picture, size=(height * self._scale, width * self._scale))


class Sequential(Module):
    """Layers one after the other."""

    def __init__(self, *layers: Module) -> None:
        vars(self).update({str(number): layer for number, layer in enumerate(layers)})

    def forward(self, values: Any) -> Any:
        """Return what the last layer makes of it."""
        for layer in vars(self).values():
            values = layer(values)
        return values


def _weights(made: int, given: int) -> Tensor:
    return placed(np.random.default_rng(made * given).standard_normal((made, given), np.float32) / given, CPU)


def _mixed(values: Tensor, weight: Tensor, how: str) -> Tensor:
    if values.device != weight.device:
        raise RuntimeError("Expected all tensors to be on the same device")
    return placed(np.einsum(how, np.asarray(weight), np.asarray(values)), values.device)


def _resized(picture: Tensor, size: tuple[int, int], mode: str = "") -> Tensor:
    rows, columns = (np.arange(wanted) * had // wanted for wanted, had in zip(size, picture.shape[-2:], strict=True))
    return placed(np.asarray(picture)[:, :, rows][:, :, :, columns], picture.device)


functional = SimpleNamespace(silu=np.tanh, interpolate=_resized)
init = SimpleNamespace(kaiming_normal_=lambda weight: weight)
