"""`python -m ghostless.jobs.cli`: how `dev` and `demo` start the other processes."""

from . import main

main(prog_name="ghostless")
