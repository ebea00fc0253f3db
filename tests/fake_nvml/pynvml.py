"""Stands in for NVML's module on a machine without a GPU: as many devices as FAKE_GPUS says."""

import os
from types import SimpleNamespace


class NVMLError(Exception):
    """What NVML answers when it cannot."""


def nvmlInit() -> None:
    """Fail as without a driver, unless a number of devices is given."""
    if "FAKE_GPUS" not in os.environ:
        raise NVMLError("Driver Not Loaded")


def nvmlShutdown() -> None:
    """Do nothing."""


def nvmlDeviceGetCount() -> int:
    """Return the number of devices."""
    return int(os.environ["FAKE_GPUS"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """Return a handle, which is the index."""
    if index >= nvmlDeviceGetCount():
        raise NVMLError("Invalid Argument")
    return index


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    """Return the handle of GPU-0, GPU-1 and so on."""
    return nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-")))


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    """Return a use that tells the devices apart."""
    return SimpleNamespace(used=1_000 + handle, free=79_000 - handle, total=80_000)
