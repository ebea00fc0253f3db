"""The demo's task type: pictures that are the same every time, however often the painting was interrupted."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from ghostless.examples import image
from ghostless.examples.painter import Painting, build_network
from ghostless.jobs import InvalidParams
from ghostless.jobs.registry import registry

NETWORK = build_network()
SIZE = {"width": 40, "height": 36, "detail": 1}


class Stop(BaseException):
    """Stands for the request to stop that the runner raises inside a handler."""


class FakeContext:
    """What a handler sees of the runner, without one: remembers all calls, and stops after some bands."""

    model = NETWORK

    def __init__(self, resumed_from: Any = None, attempt: int = 1, stop_after: int | None = None) -> None:
        self.resumed_from, self.attempt, self.stop_after = resumed_from, attempt, stop_after
        self.calls: list[str] = []
        self.reports: list[tuple[float, str]] = []
        self.checkpoints: list[str] = []  # as JSON, for that is how they reach another worker
        self.artifacts: dict[str, bytes] = {}

    def check(self) -> None:
        """Note it."""
        self.calls.append("check")

    def checkpoint(self, value: Any) -> None:
        """Keep the value as the runner would."""
        self.calls.append("checkpoint")
        self.checkpoints.append(json.dumps(value))

    def progress(self, fraction: float, message: str) -> None:
        """Note the report and, when enough bands were reported, stop the handler."""
        self.calls.append("progress")
        self.reports.append((fraction, message))
        if len(self.reports) == self.stop_after:
            raise Stop

    def stage(self, name: str) -> None:
        """Note the stage by its name."""
        self.calls.append(name)

    def log(self, line: str) -> None:
        """Note the line."""
        self.calls.append(line)

    def artifact(self, name: str, data: bytes) -> dict[str, Any]:
        """Keep the bytes and describe them as the runner would."""
        self.artifacts[name] = data
        return {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    @property
    def last_checkpoint(self) -> Any:
        """What the next attempt would get."""
        return json.loads(self.checkpoints[-1])


def generate(ctx: Any, prompt: str = "nebula", **params: Any) -> bytes:
    """Run the handler with a small picture and return the PNG it kept."""
    image.generate(ctx, prompt, **{**SIZE, **params})
    (png,) = ctx.artifacts.values()
    return png


def painted(prompt: str, seed: int = 0, side: int = 32, detail: int = 1) -> Any:
    """Return the pixels of a whole picture as floats, so that differences do not wrap."""
    return Painting(NETWORK.draw(prompt, seed), side, side, detail).rows(0, side).astype(float)


def test_a_picture_is_reproducible() -> None:
    """The same prompt and seed give the same bytes, also from a network built anew."""
    first, second = FakeContext(), FakeContext()
    second.model = build_network()
    assert generate(first, seed=3) == generate(second, seed=3)


@pytest.mark.parametrize("other", [{"seed": 1}, {"prompt": "nebulae"}])
def test_prompt_and_seed_choose_the_picture(other: dict[str, Any]) -> None:
    """Another seed or another prompt gives another picture."""
    assert generate(FakeContext(), seed=0) != generate(FakeContext(), **{"seed": 0, **other})


def test_without_a_seed_the_prompt_decides() -> None:
    """No seed is seed 0, not a random one."""
    assert generate(FakeContext()) == generate(FakeContext(), seed=0)


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_bands_equal_the_whole(rows: int) -> None:
    """A picture painted in bands of any height is the one painted at once."""
    painting = Painting(NETWORK.draw("autumn forest", 0), 50, 33, 2)
    bands = [painting.rows(first, min(first + rows, 33)) for first in range(0, 33, rows)]
    assert np.array_equal(painting.rows(0, 33), np.concatenate(bands))


def test_detail_smooths() -> None:
    """More detail comes nearer to the picture with very much detail."""
    fine = painted("city of glass", detail=64)
    errors = [np.abs(painted("city of glass", detail=detail) - fine).mean() for detail in (1, 4, 16)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("seed", range(12))
def test_no_picture_is_dull(seed: int) -> None:
    """Each picture has light and dark in it, and colour."""
    pixels = painted("a cat", seed)
    assert pixels.mean(axis=2).std() > 25
    assert np.ptp(pixels, axis=2).mean() > 30


@pytest.mark.parametrize("sides", [(16, 64), (64, 16)])
def test_a_picture_may_be_oblong(sides: tuple[int, int]) -> None:
    """Width and height are those asked for, and the shorter side sets the scale."""
    width, height = sides
    ctx = FakeContext()
    png = generate(ctx, width=width, height=height)
    assert image.from_png(png).shape == (height, width, 3)


def test_the_result_describes_the_artifact() -> None:
    """The result names the file, with size and SHA-256 of its very bytes, and the picture's sides."""
    ctx = FakeContext()
    result = image.generate(ctx, "A Cat, asleep!", **SIZE)
    (png,) = ctx.artifacts.values()
    expected = {"artifact": "a-cat-asleep.png", "size": len(png), "sha256": hashlib.sha256(png).hexdigest()}
    assert result == {**expected, "width": 40, "height": 36}


def test_each_band_is_checked_kept_and_then_reported() -> None:
    """A band is safe before its report, which may be answered with a stop; encoding is a stage of its own."""
    ctx = FakeContext()
    generate(ctx)
    assert ctx.calls == ["check", "checkpoint", "progress"] * 17 + ["check", "progress", "encode"]
    assert ctx.reports[0] == (2 / 36, "band 1 of 18")
    assert ctx.reports[-1] == (1.0, "band 18 of 18")


@pytest.mark.parametrize("stop_after", [1, 7, 17])
def test_a_stopped_picture_goes_on_where_it_was(stop_after: int) -> None:
    """The next attempt paints only what is missing, and the picture is the one of an attempt never stopped."""
    stopped = FakeContext(stop_after=stop_after)
    with pytest.raises(Stop):
        generate(stopped)
    resumed = FakeContext(stopped.last_checkpoint, attempt=2)
    assert generate(FakeContext()) == generate(resumed)
    assert f"band {stop_after + 1} of 18" == resumed.reports[0][1]
    assert f"going on after band {stop_after} of 18" == resumed.calls[0]


def test_a_larger_picture_is_kept_less_often() -> None:
    """Beyond 256 x 256 pixels every fourth band is kept, and what was painted since is painted again."""
    stopped = FakeContext(stop_after=10)
    with pytest.raises(Stop):
        generate(stopped, width=260, height=256)
    assert len(stopped.checkpoints) == 2
    resumed = FakeContext(stopped.last_checkpoint, attempt=2, stop_after=1)
    with pytest.raises(Stop):
        generate(resumed, width=260, height=256)
    assert resumed.reports[0][1] == "band 9 of 32"


@pytest.mark.parametrize("other", [{"width": 41}, {"height": 35}, {"detail": 2}, {"seed": 1}, {"prompt": "fog"}])
def test_a_checkpoint_of_another_picture_is_ignored(other: dict[str, Any]) -> None:
    """Rows of other params never get into a picture; it is painted from the start."""
    foreign = FakeContext()
    generate(foreign, **other)
    ctx = FakeContext(foreign.last_checkpoint)
    assert generate(FakeContext()) == generate(ctx)
    assert ctx.reports[0][1] == "band 1 of 18"


@pytest.mark.parametrize("value", [None, {}, [], "text", 3, {"picture": None, "png": "x"}])
def test_a_checkpoint_of_another_kind_is_ignored(value: Any) -> None:
    """Whatever else the checkpoint holds, the picture is painted from the start."""
    ctx = FakeContext(value)
    generate(ctx)
    assert ctx.reports[0][1] == "band 1 of 18"


def test_checkpoints_stay_under_the_limit() -> None:
    """Rows that do not fit are not kept, nor is anything after them: the last that fitted stands."""
    noise = np.random.default_rng(0).integers(0, 256, (480, 480, 3), np.uint8)  # 691,200 bytes, incompressible
    keeper = image.Keeper(["noise"])
    assert len(json.dumps(keeper.checkpoint(noise))) < 1024 * 1024
    assert keeper.checkpoint(np.concatenate([noise, noise])) is None
    assert keeper.checkpoint(noise) is None


def test_checkpoints_of_the_default_size_fit() -> None:
    """A picture of 512 x 512 is kept seven times on its way, with less than 2 MB written in all."""
    ctx = FakeContext()
    generate(ctx, width=512, height=512)
    assert len(ctx.checkpoints) == 7
    assert sum(map(len, ctx.checkpoints)) < 2_000_000


def test_a_costly_picture_reports_often() -> None:
    """A band is at most about a second of work, however large and detailed the picture."""
    painting = Painting(NETWORK.draw("nebula", 0), 4096, 4096, 64)
    assert image.Bands(rows=1, count=4096, kept_every=4) == image.Bands.of(painting)


def test_fail_first_fails_the_first_attempt_half_way() -> None:
    """The first attempt fails with half of the picture kept; the second goes on from there and succeeds."""
    first = FakeContext()
    with pytest.raises(RuntimeError, match="fail_first"):
        generate(first, fail_first=True)
    assert first.reports[-1] == (0.5, "band 9 of 18")
    second = FakeContext(first.last_checkpoint, attempt=2)
    assert generate(FakeContext()) == generate(second, fail_first=True)
    assert second.reports[0][1] == "band 10 of 18"


@pytest.mark.parametrize(
    ("prompt", "name"),
    [("A lighthouse at dusk", "a-lighthouse-at-dusk"), ("../etc/passwd", "etc-passwd"), ("猫", "picture")],
)
def test_the_file_is_named_after_the_prompt(prompt: str, name: str) -> None:
    """Only lower-case letters, digits and hyphens get into the name, and it is never empty."""
    assert name == image.slug(prompt)
    assert len(image.slug("long " * 100)) <= 60


@pytest.mark.parametrize(
    ("name", "value"),
    [("prompt", ""), ("prompt", "x" * 501), ("width", 15), ("height", 4097), ("detail", 0), ("detail", 65)],
)
def test_params_out_of_range_are_refused(name: str, value: Any) -> None:
    """Nothing is painted that would be no picture or take for ever; the refusal names the param."""
    task_type = registry.get("image.generate")
    assert task_type is not None
    with pytest.raises(InvalidParams, match=f"params.{name}"):
        task_type.validate({"prompt": "nebula", name: value})
