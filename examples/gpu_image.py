# pyright: basic, reportMissingImports=false
# torch is large, and not installed where types are checked.
"""The task type `image.diffuse`: a diffusion model in torch, on CUDA when there is one, else on the CPU.

The model is small and nothing is learnt: its weights are drawn from a fixed seed, so that it needs no download. Its
life is that of a real one: loaded once and kept in GPU memory across tasks, asked between two steps whether to stop,
going on from the last kept latent, and leaving no memory behind, however a task ends.

    pip install 'ghostless[gpu-example]'
    ghostless worker gpu --tasks ghostless.examples.gpu_image
"""

import base64
import hashlib
import io
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

try:
    import numpy as np
    import torch
    from PIL import Image
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise ImportError(f"{error}; image.diffuse needs it: pip install 'ghostless[gpu-example]'") from error

from ..jobs import Context, task

VERSION = 1
"""Raise it with every change that alters a picture, so that no picture is finished by other code than began it."""

CHANNELS, WIDTH, WORDS = 4, 64, 32
"""Of a latent; of the networks' layers; numbers that stand for a prompt."""

SCALE = 8
"""Pixels of the picture for one point of the latent, each way."""

KEPT_EVERY = 5
"""Steps after which the latent is kept: 88 KB of JSON at 512x512, 350 KB at 1024x1024."""

Prompt = Annotated[str, Field(min_length=1, max_length=500)]
Side = Annotated[int, Field(ge=64, le=1024, multiple_of=SCALE)]
Steps = Annotated[int, Field(ge=1, le=1000)]


def _convolution(given: int, made: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(given, made, 3, stride=stride, padding=1, padding_mode="reflect")


class Denoiser(nn.Module):
    """Guesses the picture behind a noisy latent, at a level of noise, for a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = _convolution(CHANNELS, WIDTH)
        self.down = _convolution(WIDTH, 2 * WIDTH, stride=2)
        self.condition = nn.Linear(WORDS + 1, 2 * WIDTH)
        self.middle = _convolution(2 * WIDTH, 2 * WIDTH)
        self.up = _convolution(2 * WIDTH, WIDTH)
        self.leave = _convolution(WIDTH, CHANNELS)

    def forward(self, latent: Tensor, level: float, words: Tensor) -> Tensor:
        """Return the guess, of the latent's shape."""
        fine = functional.silu(self.enter(latent))
        asked = self.condition(torch.cat([words, words.new_tensor([[level]])], dim=1))
        coarse = functional.silu(self.middle(functional.silu(self.down(fine))) + asked[:, :, None, None])
        wide = functional.interpolate(coarse, size=fine.shape[-2:], mode="bilinear")
        return torch.tanh(self.leave(functional.silu(self.up(wide)) + 0.1 * fine))


class Model(nn.Module):
    """The denoiser and the decoder from a latent to pixels, with the device they are on."""

    def __init__(self) -> None:
        super().__init__()
        self.denoiser = Denoiser()
        self.decoder = nn.Sequential(
            _convolution(CHANNELS, WIDTH), nn.SiLU(),
            nn.Upsample(scale_factor=SCALE, mode="bicubic"),
            _convolution(WIDTH, WIDTH // 4), nn.SiLU(), _convolution(WIDTH // 4, 3),
        )  # fmt: skip

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.denoiser.enter.weight.device


def load_model() -> Model:
    """Draw the weights, the same everywhere, and move them to the GPU, if there is one."""
    torch.manual_seed(VERSION)
    model = Model().eval().requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def free_model(model: Model) -> None:
    """Give the GPU's memory back when the process that held the model ends in order."""
    model.cpu()
    free_memory()


def free_memory() -> None:
    """Give back what torch keeps for later: other processes may want it now."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def memory_freed() -> Iterator[None]:
    """Leave no GPU memory behind, also when the work inside is stopped in the middle of a step."""
    try:
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they hold the tensors of the step that was not finished
        raise
    finally:
        free_memory()


@task("image.diffuse", queue="gpu", timeout=600, max_retries=3, setup=load_model, teardown=free_model)
def diffuse(
    ctx: Context, prompt: Prompt, steps: Steps = 30, width: Side = 512, height: Side = 512, seed: int = 0
) -> dict[str, object]:
    """Make a picture for a prompt from noise, step by step, and keep it as a PNG artifact.

    The same prompt and seed give the same picture on the same kind of device. `width` and `height` are pixels,
    multiples of 8.
    """
    with memory_freed():
        pixels = sample(ctx, prompt, steps, (height // SCALE, width // SCALE), seed)
    kept = ctx.artifact("picture.png", to_png(pixels))
    return {"artifact": kept["name"], "size": kept["size"], "sha256": kept["sha256"], "device": str(ctx.model.device)}


@torch.inference_mode()
def sample(ctx: Context, prompt: str, steps: int, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return the pixels, going on from the latent that an earlier attempt of the same picture kept."""
    model: Model = ctx.model
    identity = [VERSION, prompt, steps, *shape, seed]
    words = embed(prompt).to(model.device)
    latent, first = restore(ctx.resumed_from, identity) or (noise(seed, shape), 0)
    latent = latent.to(model.device)
    for step in range(first, steps):
        ctx.check()
        latent = denoise(model.denoiser, latent, step, steps, words)
        if (step + 1) % KEPT_EVERY == 0 and step + 1 < steps:
            ctx.checkpoint(keep(latent, step + 1, identity))
        ctx.progress((step + 1) / steps, f"step {step + 1} of {steps}")
    ctx.stage("decode")
    return to_pixels(model.decoder(latent))


def denoise(denoiser: Denoiser, latent: Tensor, step: int, steps: int, words: Tensor) -> Tensor:
    """Take one deterministic step from more noise to less (J. Song et al., "Denoising diffusion implicit models")."""
    now, then = step / steps, (step + 1) / steps  # parts of the signal, as squares of its share
    guess = denoiser(latent, 1 - now, words)
    left = (latent - now**0.5 * guess) / (1 - now) ** 0.5
    return then**0.5 * guess + (1 - then) ** 0.5 * left


def noise(seed: int, shape: tuple[int, int]) -> Tensor:
    """Return the latent to begin with; drawn on the CPU, so that it is the same on every device."""
    return torch.randn(1, CHANNELS, *shape, generator=torch.Generator().manual_seed(seed % 2**63))


def embed(prompt: str) -> Tensor:
    """Return the numbers that stand for a prompt; a real model would read the words."""
    seed = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:7])
    return torch.randn(1, WORDS, generator=torch.Generator().manual_seed(seed))


def keep(latent: Tensor, steps_done: int, identity: list[Any]) -> dict[str, object]:
    """Return a checkpoint's value: the latent in base64, and which picture it belongs to."""
    raw = latent.cpu().numpy().astype("<f4").tobytes()
    return {"picture": identity, "steps": steps_done, "latent": base64.b64encode(raw).decode()}


def restore(checkpoint: object, identity: list[Any]) -> tuple[Tensor, int] | None:
    """Return the kept latent and the steps that were done; None when there is none for this picture."""
    match checkpoint:
        case {"picture": kept, "steps": int(steps_done), "latent": str(text)} if kept == identity:
            height, width = identity[3:5]
            raw = np.frombuffer(base64.b64decode(text), "<f4").reshape(1, CHANNELS, height, width)
            return torch.from_numpy(raw.copy()), steps_done
        case _:
            return None


def to_pixels(picture: Tensor) -> np.ndarray:
    """Return RGB bytes with the contrast stretched to all there is, channel by channel."""
    low, high = picture.amin(dim=(2, 3), keepdim=True), picture.amax(dim=(2, 3), keepdim=True)
    stretched = (picture - low) / (high - low).clamp(min=1e-6) * 255
    return stretched[0].permute(1, 2, 0).to(torch.uint8).cpu().numpy()


def to_png(pixels: np.ndarray) -> bytes:
    """Encode RGB bytes."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
