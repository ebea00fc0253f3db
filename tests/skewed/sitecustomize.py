"""Python's sleep for processes under faketime, whose own refuses the absolute times that Python 3.11 and newer name."""

import select
import time


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = _sleep
