"""The example for GPUs, on the CPU where there is none: the same picture however often it was interrupted."""

import gc
import hashlib
import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'ghostless[gpu-example]'")

from ghostless.examples import gpu_image  # noqa: E402  (needs torch)
from ghostless.jobs.registry import registry  # noqa: E402

SMALL = {"steps": 12, "width": 64, "height": 72}


class Stop(BaseException):
    """Stands for the request to stop that the runner raises inside a handler."""


class FakeContext:
    """What the handler sees of the runner: remembers all calls, and stops after some reports."""

    def __init__(self, model: Any, resumed_from: Any = None, stop_after: int | None = None) -> None:
        self.model, self.resumed_from, self.stop_after = model, resumed_from, stop_after
        self.calls: list[str] = []
        self.reports: list[tuple[float, str]] = []
        self.checkpoints: list[str] = []
        self.artifacts: dict[str, bytes] = {}

    def check(self) -> None:
        """Note it, and stop the handler when it has reported often enough."""
        self.calls.append("check")
        if len(self.reports) == self.stop_after:
            raise Stop

    def checkpoint(self, value: Any) -> None:
        """Keep the value as the runner would."""
        self.checkpoints.append(json.dumps(value))

    def progress(self, fraction: float, message: str) -> None:
        """Note the report."""
        self.reports.append((fraction, message))

    def stage(self, name: str) -> None:
        """Note the stage by its name."""
        self.calls.append(name)

    def artifact(self, name: str, data: bytes) -> dict[str, Any]:
        """Keep the bytes and describe them as the runner would."""
        self.artifacts[name] = data
        return {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.fixture(scope="module")
def model() -> Any:
    """The model, loaded once, as in a horse."""
    return gpu_image.load_model()


def diffuse(ctx: Any, prompt: str = "nebula", **params: Any) -> bytes:
    """Run the handler and return the PNG that it kept."""
    gpu_image.diffuse(ctx, prompt, **{**SMALL, **params})
    return ctx.artifacts["picture.png"]


def test_it_reports_and_asks_at_every_step(model: Any) -> None:
    """Between two steps it can be stopped; every fifth latent is kept, but not the last."""
    ctx = FakeContext(model)
    diffuse(ctx)
    assert [f"step {step} of 12" for step in range(1, 13)] == [message for _, message in ctx.reports]
    assert (12, 1) == (ctx.calls.count("check"), ctx.calls.count("decode"))
    assert [5, 10] == [json.loads(kept)["steps"] for kept in ctx.checkpoints]


def test_the_picture_depends_on_prompt_and_seed_alone(model: Any) -> None:
    """The same again for the same, also with the model loaded anew; another one for others."""
    first = diffuse(FakeContext(model))
    assert first == diffuse(FakeContext(gpu_image.load_model()))
    assert first != diffuse(FakeContext(model), seed=1)
    assert first != diffuse(FakeContext(model), prompt="lighthouse")
    pixels = gpu_image.np.asarray(gpu_image.Image.open(gpu_image.io.BytesIO(first)))
    assert (72, 64, 3) == pixels.shape
    assert pixels.std() > 20, "a picture, not a plain grey"


@pytest.mark.parametrize("stop_after", [5, 7, 11])
def test_a_stopped_picture_goes_on_from_its_latent(model: Any, stop_after: int) -> None:
    """No kept step is done again, and the picture is the same byte for byte."""
    ctx = FakeContext(model, stop_after=stop_after)
    with pytest.raises(Stop):
        diffuse(ctx)
    again = FakeContext(model, resumed_from=json.loads(ctx.checkpoints[-1]))
    assert diffuse(FakeContext(model)) == diffuse(again)
    assert 12 - stop_after // 5 * 5 == len(again.reports)


@pytest.mark.parametrize("checkpoint", [None, 7, {}, {"picture": [0], "steps": 3, "latent": ""}])
def test_a_foreign_checkpoint_is_passed_over(model: Any, checkpoint: Any) -> None:
    """It begins anew."""
    ctx = FakeContext(model, resumed_from=checkpoint)
    diffuse(ctx)
    assert 12 == len(ctx.reports)


def test_the_largest_checkpoint_fits(model: Any) -> None:
    """Under the 1 MiB that a checkpoint may have."""
    latent = torch.zeros(1, gpu_image.CHANNELS, 128, 128)
    assert len(json.dumps(gpu_image.keep(latent, 1, ["p" * 500]))) < 2**20


def tensors() -> int:
    """Count the tensors that are alive in this process."""
    gc.collect()
    return sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects())


def test_a_stop_in_the_middle_leaves_no_tensors(model: Any) -> None:
    """Not even while the exception lives, whose traceback would hold them; on a GPU they are memory."""
    diffuse(FakeContext(model))
    before = tensors()
    with pytest.raises(Stop) as stopped:
        diffuse(FakeContext(model, stop_after=7))
    assert stopped.value.__traceback__
    assert before >= tensors()


def test_the_model_is_freed_at_the_end() -> None:
    """The type has a setup and a teardown; after that the weights are not on a GPU."""
    kind = registry.get("image.diffuse")
    assert kind
    assert (gpu_image.load_model, gpu_image.free_model) == (kind.setup, kind.teardown)
    model = gpu_image.load_model()
    gpu_image.free_model(model)
    assert "cpu" == model.device.type


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_stop_frees_the_memory_of_the_gpu(model: Any) -> None:
    """After a cancel the GPU has as much free memory as before, but for the model."""
    diffuse(FakeContext(model))
    before = torch.cuda.memory_reserved()
    with pytest.raises(Stop):
        diffuse(FakeContext(model, stop_after=7), width=1024, height=1024)
    assert torch.cuda.memory_reserved() <= before
