"""BullMQ's packages: installed by npm into the environment of this Python, once."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from .errors import LeftOut

FOLDER = Path(sys.prefix) / "bullmq"
"""In the environment, so that it goes with it."""

MODULES = FOLDER / "node_modules"
PACKAGES = ("bullmq@>=6", "ioredis@>=5")
PATIENCE = 120
"""Seconds for npm."""


def bullmq_version() -> str:
    """Return the version of BullMQ, which is installed when it is not there yet. Raises LeftOut."""
    manifest = MODULES / "bullmq" / "package.json"
    if not manifest.exists():
        _install()
    return json.loads(manifest.read_text())["version"]


def _install() -> None:
    if not shutil.which("node") or not shutil.which("npm"):
        raise LeftOut("node or npm is not there")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), *PACKAGES]
    try:
        FOLDER.mkdir(exist_ok=True)
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError) as error:
        raise LeftOut(f"npm could not install it: {error}") from error
