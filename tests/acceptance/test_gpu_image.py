"""The example for GPUs by a real worker, with a small stand-in for torch: what becomes of model and memory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from helpers import eventually, expect

from .conftest import assert_clean, ended

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
WITH_TORCH = f"{TESTS}{os.pathsep}{TESTS / 'fake_torch'}"
PICTURE = {"prompt": "nebula", "width": 64, "height": 72}

LIFE = """
from ghostless.examples import gpu_image
import torch
model = gpu_image.load_model()
print(model.device, torch.cuda.memory_reserved() > 0)
gpu_image.free_model(model)
print(model.device, torch.cuda.memory_reserved())
"""


def test_the_model_outlives_tasks_and_the_memory_of_a_task_does_not(client: Client, fleet: Fleet) -> None:
    """Loaded once, on the GPU; after each task, also one that was cancelled in a step, the GPU holds just the model."""
    fleet.environment |= {"PYTHONPATH": WITH_TORCH, "FAKE_CUDA": "1"}
    worker = fleet.worker("gpu", tasks="ghostless.examples.gpu_image")
    eventually(lambda: expect("image.diffuse" in client.types()), seconds=20)
    first = client.submit("image.diffuse", PICTURE | {"steps": 3}).task_id
    assert ended(client, first, "SUCCESS").result["device"] == "cuda"
    cancelled = client.submit("image.diffuse", PICTURE | {"steps": 1000, "width": 512}).task_id
    eventually(lambda: expect(client.get(cancelled).progress), seconds=20)
    client.cancel(cancelled)
    ended(client, cancelled, "CANCELLED")
    assert "killed" not in client.history(cancelled)[-1].message
    again = client.submit("image.diffuse", PICTURE | {"steps": 3}).task_id
    assert ended(client, again, "SUCCESS").result == client.get(first).result
    worker.terminate()
    assert worker.wait(timeout=20) == 0
    assert fleet.logs().count("torch: seeded") == 1
    *tasks, at_the_end = [(int(kept), int(before)) for kept, before in re.findall(FREED, fleet.logs())]
    assert [kept for kept, _ in tasks] == [tasks[0][0]] * 3, "the model and nothing else"
    assert all(before > kept > 0 for kept, before in tasks)
    assert at_the_end[0] == 0, "its teardown frees the model"
    assert_clean(client, fleet, first, cancelled, again)


FREED = r"torch: (\d+) bytes kept of (\d+)"


@pytest.mark.parametrize(("cuda", "told"), [("1", ["cuda True", "cpu 0"]), ("", ["cpu False", "cpu 0"])])
def test_the_device(cuda: str, told: list[str]) -> None:
    """The GPU when there is one, else the CPU; a freed model is on no GPU."""
    environment = os.environ | {"PYTHONPATH": WITH_TORCH, "FAKE_CUDA": cuda}
    command = [sys.executable, "-c", LIFE]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line for line in printed.splitlines() if not line.startswith("torch:")] == told
