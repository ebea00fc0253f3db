"""The scripts, one verb a file, and the loader that puts the rendered table and key names before each."""

from .loader import BATCH, RESULTS_LIMIT, SHARED, VERBS, render_all

__all__ = ["BATCH", "RESULTS_LIMIT", "SHARED", "VERBS", "render_all"]
