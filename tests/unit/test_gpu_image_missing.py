"""The example for GPUs on a machine without torch."""

import sys

import pytest


@pytest.mark.parametrize("missing", ["torch", "numpy", "PIL"])
def test_what_is_missing_is_told_with_how_to_install_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the one line that a worker shows of a module that cannot be imported."""
    monkeypatch.delitem(sys.modules, "ghostless.examples.gpu_image", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"(torch|numpy|PIL).*pip install 'ghostless\[gpu-example\]'"):
        __import__("ghostless.examples.gpu_image")
