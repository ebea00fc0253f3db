"""The listener's end of the channel to a handler's process, which the test plays."""

import os
from multiprocessing import Pipe

from ghostless.jobs.handler_process import HandlerProcess, Outcome
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from ghostless.jobs.subscriptions import Subscription

ENTRY = Entry("5-1", "t1", "SUBMIT", "", "PENDING", 0, "tester", "user")
PATIENCE = 5.0


def test_what_answers_another_call_is_no_outcome_of_this_one() -> None:
    """A copy of the handler's process, say, may answer an entry once more."""
    process = HandlerProcess(Subscription("tell", "module:tell", ("SUBMIT",), 2, 5.0), Settings())
    process._channel, theirs = Pipe()
    process._pidfd = os.pidfd_open(os.getpid())
    try:
        process.begin(ENTRY)
        theirs.send(("5-0", Outcome()))
        theirs.send((ENTRY.id, Outcome("no")))
        assert process.outcome(PATIENCE) is None
        assert process.outcome(PATIENCE) == Outcome("no")
    finally:
        os.close(process._pidfd)
