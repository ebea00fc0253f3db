"""Stands in for torch on a machine without it: just what examples/gpu_image.py uses, on numpy.

The pictures mean nothing. What counts is kept as in torch: on which device a tensor is, that tensors of two devices do
not mix, and how much memory of the GPU is held. There is one when FAKE_CUDA is set. What a test is to see is printed.
"""

from . import cuda, nn
from .tensor import Tensor, cat, device, from_numpy, randn, tanh, uint8

__all__ = [
    "Generator", "Tensor", "cat", "cuda", "device", "from_numpy", "inference_mode", "manual_seed", "nn", "randn",
    "tanh", "uint8",
]  # fmt: skip


class Generator:
    """Where random numbers come from."""

    def manual_seed(self, seed: int) -> "Generator":
        """Begin anew from a seed."""
        self.seed = seed
        return self


def manual_seed(seed: int) -> None:
    """Tell that weights are about to be drawn, which is once for each model that is loaded."""
    print(f"torch: seeded with {seed}", flush=True)


def inference_mode():  # noqa: ANN201 (a decorator that changes nothing)
    """Return a decorator."""
    return lambda function: function
