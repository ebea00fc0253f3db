"""How the long-running verbs log: one line an event on stderr, with the time."""

import logging


def log_to_stderr(worker: str = "") -> None:
    """Set logging up once a process; each line names the worker, if one of several that share stderr is given."""
    whose = f"[{worker}] " if worker else ""  # names have no %
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)-7s {whose}%(name)s: %(message)s")
