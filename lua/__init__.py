"""The scripts, one verb a file, and the loader that puts the rendered table and key names before each."""

from .loader import SHARED, VERBS, render

__all__ = ["SHARED", "VERBS", "render"]
