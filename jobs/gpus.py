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

    The wish is "all", or numbers or UUIDs of devices separated by commas. Raises InvalidSetting when there is none.
    """
    if wish != "all":
        return [{**NVML_ORDER, VISIBLE: device} for device in _listed(wish, wish)]
    if VISIBLE in environment:  # numbered in whatever order it was set for
        return [{VISIBLE: device} for device in _listed(environment[VISIBLE], f"all, with {VISIBLE}")]
    return [{**NVML_ORDER, VISIBLE: str(number)} for number in range(_count())]


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
            found = [memory(device) for device in self._devices]
            self._latest = tuple(GpuMemory(*sizes) for sizes in found if sizes)
            time.sleep(self._interval)


def _listed(text: str, got: str) -> Sequence[str]:
    found = [device.strip() for device in text.split(",")]
    if len({*found}) < len(found) or not all(_is_device(device) for device in found):
        raise InvalidSetting(
            "--gpus", "all, or different GPUs by number or UUID, such as 0,1", got if text in got else f"{got}={text}"
        )
    return found


def _is_device(name: str) -> bool:
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))


def _count() -> int:
    expected = "numbers such as 0,1, since the GPUs cannot be counted here"
    try:
        with _nvml() as nvml:
            number = int(nvml.nvmlDeviceGetCount())
    except ImportError as error:
        raise InvalidSetting("--gpus", f"{expected} without NVML (pip install 'ghostless[gpu]')", "all") from error
    except Exception as error:  # of a class that comes with the module
        raise InvalidSetting("--gpus", f"{expected} ({error})", "all") from error
    if number == 0:
        raise InvalidSetting("--gpus", "a machine with a GPU", "all")
    return number


@contextmanager
def _nvml() -> Generator[Any]:
    nvml: Any = import_module("pynvml")
    nvml.nvmlInit()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
