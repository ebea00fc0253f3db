"""Ghostless beside other job runners in one run: `python -m ghostless.benchmarks.peers --help`."""
