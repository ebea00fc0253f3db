"""GPUs: which there are, what a worker must see to use one alone, and how full it is.

NVML, the library behind nvidia-smi, is asked through `pynvml`, which comes with `pip install 'ghostless[gpu]'`.
"""

import os
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .errors import InvalidSetting
from .record import GpuMemory

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""What a container, Slurm or a user set before is the whole of what "all" means."""

NVML_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""NVML and nvidia-smi number the devices by their place on the bus; CUDA, if not told so, the fastest first."""


def devices(wish: str, environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """Return for each device the variables with which a process sees it alone.

    The wish is "all", or numbers or UUIDs of devices separated by commas. Of devices that were chosen before in
    CUDA_VISIBLE_DEVICES "all" means these, and a number counts among them, as in torch. Raises InvalidSetting for
    devices that are not there.
    """
    if VISIBLE in environment:  # numbered in whatever order it was set for
        visible = _listed(environment[VISIBLE], f"{wish}, with {VISIBLE}={environment[VISIBLE]}")
        _check_numbers(visible, f"{wish}, with {VISIBLE}={environment[VISIBLE]}")
        return [{VISIBLE: device} for device in _chosen(wish, visible)]
    found = [str(number) for number in range(_count())] if wish == "all" else _listed(wish, wish)
    _check_numbers(found, wish)
    return [{**NVML_ORDER, VISIBLE: device} for device in found]


def _chosen(wish: str, visible: Sequence[str]) -> Sequence[str]:
    """Return the devices that a wish means where others than these are not visible. Raises InvalidSetting."""
    if wish == "all":
        return visible
    meanings = {device: device for device in visible if not device.isdecimal()}
    meanings |= {str(position): device for position, device in enumerate(visible)}
    found = [meanings.get(name, "") for name in _listed(wish, wish)]
    if "" in found or len({*found}) < len(found):
        numbers = ", ".join(str(position) for position in range(len(visible)))
        expected = f"all, or different ones of the devices in {VISIBLE}={','.join(visible)}, by their places {numbers}"
        raise InvalidSetting("--gpus", expected, wish)
    return found


def memory(device: str) -> tuple[int, int] | None:
    """Return the used and the whole memory of a device in bytes; None where NVML cannot tell."""
    try:
        with _nvml() as nvml:
            by_number = device.isdecimal()
            handle = (
                nvml.nvmlDeviceGetHandleByIndex(int(device)) if by_number else nvml.nvmlDeviceGetHandleByUUID(device)
            )
            found = nvml.nvmlDeviceGetMemoryInfo(handle)
            return int(found.used), int(found.total)
    except Exception:  # no module, no driver, no such device: each has an error of its own
        return None


class GpuMeter:
    """Looks again and again how full the devices are that this process sees, in a thread: NVML can hang.

    `interval` is seconds. Without a choice of devices in the environment nothing is looked at.
    """

    def __init__(self, interval: float, environment: Mapping[str, str] = os.environ) -> None:
        self._interval = interval
        self._devices = [name for name in environment.get(VISIBLE, "").split(",") if _is_device(name)]
        self._latest: tuple[GpuMemory, ...] = ()
        if self._devices:
            threading.Thread(target=self._look, name="gpu-meter", daemon=True).start()

    def latest(self) -> tuple[GpuMemory, ...]:
        """Return what was seen last, without waiting."""
        return self._latest

    def _look(self) -> None:
        while True:
            self._latest = tuple(GpuMemory(*(memory(device) or (0, 0)), device) for device in self._devices)
            time.sleep(self._interval)


def _listed(text: str, got: str) -> Sequence[str]:
    found = [device.strip() for device in text.split(",")]
    if len({*found}) < len(found) or not all(_is_device(device) for device in found):
        raise InvalidSetting("--gpus", "all, or different GPUs by number or UUID, such as 0,1", got)
    return found


def _check_numbers(found: Sequence[str], got: str) -> None:
    """Refuse numbers that no device has; where NVML cannot count, nothing is known. Raises InvalidSetting."""
    try:
        there = range(_number_of_devices())
    except Exception:  # no module, no driver: each has an error of its own
        return
    if any(device.isdecimal() and int(device) not in there for device in found):
        numbers = ", ".join(map(str, there)) or "none"
        raise InvalidSetting("--gpus", f"GPUs that this machine has, which are {numbers}", got)


def _is_device(name: str) -> bool:
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))


def _count() -> int:
    expected = "numbers such as 0,1, since the GPUs cannot be counted here"
    try:
        number = _number_of_devices()
    except ImportError as error:
        raise InvalidSetting("--gpus", f"{expected} without NVML (pip install 'ghostless[gpu]')", "all") from error
    except Exception as error:  # of a class that comes with the module
        raise InvalidSetting("--gpus", f"{expected} ({error})", "all") from error
    if number == 0:
        raise InvalidSetting("--gpus", "a machine with a GPU", "all")
    return number


def _number_of_devices() -> int:
    with _nvml() as nvml:
        return int(nvml.nvmlDeviceGetCount())


@contextmanager
def _nvml() -> Generator[Any]:
    nvml: Any = import_module("pynvml")
    nvml.nvmlInit()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
