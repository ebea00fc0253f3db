"""A worker that takes several tasks at once however long they run: `python -m hasty AGE worker ...`.

AGE is for how many seconds they may wait behind one another.
"""

import sys

from ghostless.jobs import batch
from ghostless.jobs.cli import main

if __name__ == "__main__":
    batch.WINDOW, batch.AGE = 1000.0, float(sys.argv.pop(1))
    main(prog_name="ghostless")
