"""What `ghostless watchdog` and the web server run: a watchdog and, where there is to be an archive, an archivist."""

import logging
import threading
from pathlib import Path

from .archivist import Archivist
from .connection import connect
from .settings import Settings
from .store import Store
from .watchdog import Watchdog

log = logging.getLogger("ghostless.watchdog")


def run_watchdog(settings: Settings, stop: threading.Event) -> None:
    """Run a watchdog until `stop` is set."""
    log.info("watching %s", settings.redis_url.rpartition("@")[2])
    if settings.archive_to:
        archivist = Archivist(Store(connect(settings), settings), Path(settings.archive_to))
        threading.Thread(target=archivist.run, args=(stop,), name="archivist", daemon=True).start()
    Watchdog(Store(connect(settings), settings)).run(stop)
