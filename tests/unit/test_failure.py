"""What an exception tells besides its message."""

import pytest
from ghostless.jobs.failure import MOST_CAUSES, describe_error


def retire(error: BaseException) -> str:
    """Return why the process that raised it is to run no further task."""
    return describe_error(error, "exception", "", retryable=True)["retire"]


@pytest.mark.parametrize(
    ("message", "is_lost"),
    [
        ("CUDA error: device-side assert triggered", True),
        ("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS", True),
        ("cudaErrorLaunchFailure: unspecified launch failure", True),
        ("HIP error: invalid device function", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("CUDA error: out of memory", False),
        ("INTERNAL: CUDA_ERROR_OUT_OF_MEMORY", False),
        ("cudaErrorMemoryAllocation: out of memory", False),
        ("no such file", False),
    ],
)
def test_an_error_of_a_lost_gpu_spoils_its_process(message: str, is_lost: bool) -> None:
    """As the libraries word it; being out of memory is none."""
    assert is_lost == (message in retire(RuntimeError(message)))


def test_what_caused_an_error_counts_too() -> None:
    """However it was wrapped, and without end in a circle."""
    cause, error = RuntimeError("CUDA error: unknown"), ValueError("no picture")
    error.__cause__ = cause
    assert "CUDA error: unknown" in retire(error)
    error.__cause__, cause.__cause__ = None, error
    error.__context__ = cause
    assert "CUDA error: unknown" in retire(error)
    error.__context__ = error
    assert "" == retire(error), f"after {MOST_CAUSES} of them"
