"""The Redis that `dev` and `demo` start for themselves: a real server, or a stand-in where there is none."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .lazy import Failed

OLDEST = {"redis-server": (7, 0), "valkey-server": (7, 2)}
"""The programs that will do, and the oldest version of each."""

STANDIN = "no redis-server found: a stand-in for trying things out, which keeps nothing"

HOW_TO_GET_IT = "install redis-server 7.0 or newer (or valkey-server), or: pip install 'ghostless[demo]'"


@dataclass(frozen=True, slots=True)
class Database:
    """How to start a server: the command but for its port, and what to say of it."""

    command: tuple[str, ...]
    description: str

    def command_for(self, port: int) -> list[str]:
        """Return the whole command."""
        return [*self.command, "--port", str(port)]


def find_database(folder: Path) -> Database:
    """Return the best server that this machine has; it keeps its data in `folder`."""
    for program, oldest in OLDEST.items():
        path = shutil.which(program)
        version = _version(path) if path else None
        if path and version and version >= oldest:
            shown = ".".join(map(str, version))
            return Database(_command(path, folder), f"{program} {shown}, data in {folder}")
    if find_spec("fakeredis") and find_spec("lupa"):
        return Database((sys.executable, "-m", f"{__package__}.standin"), STANDIN)
    raise Failed(f"there is no Redis to start here; {HOW_TO_GET_IT}")


def _command(path: str, folder: Path) -> tuple[str, ...]:
    # Written down at once and never thrown away: what was accepted survives a restart.
    kept = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
    return (path, "--bind", "127.0.0.1", "--dir", str(folder.resolve()), "--daemonize", "no", *kept)


def _version(path: str) -> tuple[int, ...] | None:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else None
