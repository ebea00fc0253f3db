"""Devices: which ones a wish means, and what NVML tells of them. The module pynvml is a fake one."""

import sys
from pathlib import Path

import pytest
from ghostless.jobs import gpus
from ghostless.jobs.errors import InvalidSetting
from helpers import eventually

FAKE = Path(__file__).parents[1] / "fake_nvml"
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs."""
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.setenv("FAKE_GPUS", "3")


def seen(device: str) -> dict[str, str]:
    """Return what a process sees of a device that NVML numbers."""
    return {**BY_BUS, "CUDA_VISIBLE_DEVICES": device}


def test_all_are_those_that_nvml_counts(three: None) -> None:
    """Each is seen alone, under the number that nvidia-smi gives it."""
    assert [seen("0"), seen("1"), seen("2")] == gpus.devices("all", {})


def test_all_are_those_that_were_given_to_this_process(three: None) -> None:
    """A container or Slurm has chosen already; in which order it numbered them is left as it is."""
    given = {"CUDA_VISIBLE_DEVICES": "2, GPU-8932f937"}
    assert [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}] == gpus.devices("all", given)


@pytest.mark.parametrize(
    ("wish", "meant"),
    [("0", ["2"]), ("1,0", ["GPU-8932f937", "2"]), ("GPU-8932f937", ["GPU-8932f937"])],
)
def test_numbers_count_among_those_that_were_given(three: None, wish: str, meant: list[str]) -> None:
    """As in torch: the first that is visible is 0, whatever the machine calls it."""
    given = {"CUDA_VISIBLE_DEVICES": "2,GPU-8932f937"}
    assert [{"CUDA_VISIBLE_DEVICES": device} for device in meant] == gpus.devices(wish, given)


@pytest.mark.parametrize("wish", ["2", "0,2", "GPU-x", "1,GPU-8932f937"])
def test_what_was_not_given_is_refused(wish: str) -> None:
    """With what there is, and how it is numbered; also the same device by two names."""
    given = {"CUDA_VISIBLE_DEVICES": "2,GPU-8932f937"}
    with pytest.raises(InvalidSetting, match=r"CUDA_VISIBLE_DEVICES=2,GPU-8932f937, by their places 0, 1, got"):
        gpus.devices(wish, given)


@pytest.mark.parametrize(("wish", "given"), [("0,7", {}), ("all", {"CUDA_VISIBLE_DEVICES": "0,7"})])
def test_a_device_that_is_not_there_is_refused(three: None, wish: str, given: dict[str, str]) -> None:
    """A typing error would make a worker that never sees a GPU; those that are there are named."""
    with pytest.raises(InvalidSetting, match="--gpus: expected GPUs that this machine has, which are 0, 1, 2, got"):
        gpus.devices(wish, given)


def test_devices_can_be_named_without_nvml() -> None:
    """By number or by UUID."""
    assert [seen("0"), seen("3"), seen("MIG-1-2")] == gpus.devices("0,3, MIG-1-2", {})


@pytest.mark.parametrize("wish", ["", "0,", "0,0", "one", "-1", "0;1", "All"])
def test_what_names_no_device_is_refused(wish: str) -> None:
    """By the name of the option, with what is expected."""
    with pytest.raises(InvalidSetting, match="--gpus: expected all, or different GPUs by number or UUID"):
        gpus.devices(wish, {})


@pytest.mark.parametrize("given", ["", "NoDevFiles", "-1"])
def test_no_device_for_this_process_is_told(three: None, given: str) -> None:
    """What a batch system sets when it gives none."""
    with pytest.raises(InvalidSetting, match="all, with CUDA_VISIBLE_DEVICES"):
        gpus.devices("all", {"CUDA_VISIBLE_DEVICES": given})


def test_without_nvml_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install it, or name the devices."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InvalidSetting, match=r"numbers such as 0,1, .* without NVML \(pip install 'ghostless\[gpu\]'"):
        gpus.devices("all", {})
    assert gpus.memory("0") is None


def test_without_a_driver_all_says_so(three: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In NVML's own words."""
    monkeypatch.delenv("FAKE_GPUS")
    with pytest.raises(InvalidSetting, match="Driver Not Loaded"):
        gpus.devices("all", {})
    assert gpus.memory("0") is None


def test_a_machine_without_a_gpu_is_told(three: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pool of nobody."""
    monkeypatch.setenv("FAKE_GPUS", "0")
    with pytest.raises(InvalidSetting, match="a machine with a GPU"):
        gpus.devices("all", {})


def test_memory_is_used_and_total(three: None) -> None:
    """In bytes, of a device by number or UUID; of none that is not there."""
    assert [(1_000, 80_000), (1_002, 80_000)] == [gpus.memory("0"), gpus.memory("GPU-2")]
    assert [None, None, None] == [gpus.memory("7"), gpus.memory(""), gpus.memory("GPU-x")]


def test_the_meter_shows_the_devices_that_the_process_sees(three: None) -> None:
    """Looked at in a thread of its own, and never waited for."""
    meter = gpus.GpuMeter(0.05, {gpus.VISIBLE: "1"})
    (found,) = eventually(lambda: _some(meter.latest()))
    assert found == gpus.GpuMemory(*(gpus.memory("1") or (0, 0)), device="1")
    other = gpus.GpuMeter(0.05, {gpus.VISIBLE: "GPU-7"})
    assert (gpus.GpuMemory(0, 0, "GPU-7"),) == eventually(lambda: _some(other.latest())), "NVML does not know it"
    assert () == gpus.GpuMeter(0.05, {}).latest()


def _some(found: tuple[gpus.GpuMemory, ...]) -> tuple[gpus.GpuMemory, ...]:
    assert found
    return found
