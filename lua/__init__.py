"""The scripts, one verb a file, and the loader that puts the rendered table and key names before each."""

from .loader import BAND, BATCH, LISTED_FROM, RESULTS_LIMIT, SHARED, VERBS, render_all

__all__ = ["BAND", "BATCH", "LISTED_FROM", "RESULTS_LIMIT", "SHARED", "VERBS", "render_all"]
