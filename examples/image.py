"""The task type `image.generate`: real work of a few seconds that can be stopped and goes on where it was."""

import base64
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from PIL import Image
from pydantic import Field

from ..jobs import Context, task
from .painter import SAMPLES, VERSION, Network, Painting, Pixels, build_network

BANDS = 32
"""A picture is painted in at least about this many bands; after each one the task reports and may be stopped."""

BAND_POINTS = 2_000_000
"""Most points in a band, about a second of work, so that a costly picture reports as often as a cheap one."""

SMALL = 256 * 256
"""Pixels up to which every band is kept. Of a larger picture every fourth: at 512x512 7 writes, 1.5 MB in all."""

KEPT_LIMIT = 700_000
"""Most bytes of PNG in a checkpoint: as base64 they stay under the 1 MiB that a checkpoint may have."""

Prompt = Annotated[str, Field(min_length=1, max_length=500)]
Side = Annotated[int, Field(ge=16, le=4096)]
Detail = Annotated[int, Field(ge=1, le=64)]


@task("image.generate", queue="gpu", timeout=600, max_retries=3, setup=build_network)
def generate(
    ctx: Context,
    prompt: Prompt,
    width: Side = 512,
    height: Side = 512,
    seed: int | None = None,
    detail: Detail = 8,
    fail_first: bool = False,
) -> dict[str, object]:
    """Paint the picture of a prompt and keep it as a PNG artifact.

    The same prompt and seed give the same picture, byte for byte on machines alike; without a seed it is 0, so the
    prompt alone decides. `width` and `height` are pixels. Time grows with pixels times `detail`, which smooths edges
    by looking at 4 points a pixel more with each step. `fail_first` makes the first attempt fail half-way, to show a
    retry.
    """
    network: Network = ctx.model
    painting = Painting(network.draw(prompt, seed or 0), width, height, detail)
    keeper = Keeper([VERSION, prompt, seed or 0, width, height, detail])
    picture = paint(ctx, painting, keeper, fail_after=0.5 if fail_first and ctx.attempt == 1 else None)
    ctx.stage("encode")
    kept = ctx.artifact(f"{slug(prompt)}.png", to_png(picture))
    return {
        "artifact": kept["name"],
        "size": kept["size"],
        "sha256": kept["sha256"],
        "width": width,
        "height": height,
    }


def paint(ctx: Context, painting: Painting, keeper: "Keeper", fail_after: float | None = None) -> Pixels:
    """Paint what the last attempt left, band by band. Raises RuntimeError once `fail_after` (0..1) is painted."""
    picture = np.zeros((painting.height, painting.width, 3), np.uint8)
    bands = Bands.of(painting)
    start = keeper.restore(ctx.resumed_from, picture)
    if start:
        ctx.log(f"going on after band {bands.number(start)} of {bands.count}")
    for first in range(start, painting.height, bands.rows):
        ctx.check()
        last = min(first + bands.rows, painting.height)
        picture[first:last] = painting.rows(first, last)
        # First the checkpoint: the report may be answered with a request to stop, and then the band is safe.
        if bands.is_kept(last) and (value := keeper.checkpoint(picture[:last])):
            ctx.checkpoint(value)
        ctx.progress(last / painting.height, f"band {bands.number(last)} of {bands.count}")
        if fail_after is not None and last >= fail_after * painting.height:
            raise RuntimeError("fail_first was set, so the first attempt fails half-way")
    return picture


@dataclass(frozen=True, slots=True)
class Bands:
    """How a picture is cut into bands, and after which of them it is kept."""

    rows: int  # of one band; the last may have fewer
    count: int
    kept_every: int  # bands

    @classmethod
    def of(cls, painting: Painting) -> "Bands":
        """Cut a picture by its height and by the cost of a row."""
        affordable = BAND_POINTS // (painting.width * painting.detail * SAMPLES)
        rows = max(1, min(math.ceil(painting.height / BANDS), affordable))
        small = painting.width * painting.height <= SMALL
        return cls(rows, math.ceil(painting.height / rows), 1 if small else 4)

    def number(self, painted: int) -> int:
        """Return how many bands these painted rows make."""
        return math.ceil(painted / self.rows)

    def is_kept(self, painted: int) -> bool:
        """Tell whether a checkpoint is due; not after the last band, where the picture itself follows."""
        number = self.number(painted)
        return number < self.count and number % self.kept_every == 0


class Keeper:
    """Carries painted rows from one attempt to the next: a PNG of them, in base64, is the checkpoint's value.

    A picture of which less than the whole fits into a checkpoint goes on from the most that did fit.
    """

    def __init__(self, identity: list[object]) -> None:
        self._identity = identity  # what must be the same for the rows to belong to this picture
        self._full = False

    def checkpoint(self, rows: Pixels) -> dict[str, object] | None:
        """Return the checkpoint's value, or None when the rows do not fit any more."""
        png = b"" if self._full else to_png(rows)
        self._full = self._full or len(png) > KEPT_LIMIT
        return None if self._full else {"picture": self._identity, "png": base64.b64encode(png).decode()}

    def restore(self, checkpoint: Mapping[str, object] | None, picture: Pixels) -> int:
        """Put the kept rows into the picture and return their number; 0 when there are none for this picture."""
        match checkpoint:
            case {"picture": identity, "png": str(png)} if identity == self._identity:
                rows = from_png(base64.b64decode(png))
                picture[: len(rows)] = rows
                return len(rows)
            case _:
                return 0


def to_png(pixels: Pixels) -> bytes:
    """Encode rows of RGB bytes."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def from_png(png: bytes) -> Pixels:
    """Decode rows of RGB bytes."""
    return np.asarray(Image.open(io.BytesIO(png)), np.uint8)


def slug(prompt: str) -> str:
    """Return a file name for the prompt: its first letters and digits, lower case, joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", prompt.lower())[:60].strip("-") or "picture"
