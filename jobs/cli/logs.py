"""How the long-running verbs log: one line an event on stderr, with the time."""

import logging


def log_to_stderr() -> None:
    """Set logging up once a process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
