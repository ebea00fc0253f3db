"""`ghostless` with a kernel whose count of processes killed for memory is a file of a test's.

`python -m faked_kernel ...` takes the same arguments. The count is $FAKED_ROOT/proc/vmstat, as jobs/memory.py looks
for it where no cgroup has one.
"""

import os
from functools import partial
from pathlib import Path

from ghostless.jobs import horse_process
from ghostless.jobs.cli import main
from ghostless.jobs.memory import MemoryWatch

if __name__ == "__main__":
    horse_process.MemoryWatch = partial(MemoryWatch, Path(os.environ["FAKED_ROOT"]))  # type: ignore[assignment, misc]
    main()
