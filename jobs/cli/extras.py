"""What the base installation does not need, and how to get it."""

from importlib.util import find_spec

from .lazy import Failed

PACKAGE_OF = {"PIL": "pillow", "numpy": "numpy"}


def require(*modules: str) -> None:
    """Raise Failed naming every package that is missing."""
    missing = [PACKAGE_OF[module] for module in modules if find_spec(module) is None]
    if missing:
        raise Failed(f"this needs {' and '.join(missing)}; install with: pip install 'ghostless[demo]'")
