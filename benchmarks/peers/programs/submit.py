"""Submits the tasks of a peer: `python submit.py MODULE`.

Each line on stdin is `single N` or `bulk N`: N tasks one by one, or all together where the peer can do that. The answer
is when that began and when it was done, in ns of the monotonic clock.
"""

import importlib
import sys
import time

program = importlib.import_module(sys.argv[1])
if prepare := getattr(program, "prepare", None):
    prepare()
print("ready", flush=True)
for line in sys.stdin:
    way, number = line.split()
    began = time.monotonic_ns()
    getattr(program, way)(int(number))
    print(began, time.monotonic_ns(), flush=True)
