"""The life of a task as plain data: states, events, the table, budgets. No I/O, no clock."""

from .budget import Policy, Used, backoff, counter_for, may_retry
from .events import ACTIONS, BY_POLICY, LOSSES, UNRECORDED, Event, Reason
from .states import FINAL, RUNNING, STORED, TRANSIENT, WAITING_FOR_TIME, State
from .table import ALREADY, INITIAL, TABLE, Verdict, judge

__all__ = [
    "ACTIONS",
    "ALREADY",
    "BY_POLICY",
    "FINAL",
    "INITIAL",
    "LOSSES",
    "RUNNING",
    "STORED",
    "TABLE",
    "TRANSIENT",
    "UNRECORDED",
    "WAITING_FOR_TIME",
    "Event",
    "Policy",
    "Reason",
    "State",
    "Used",
    "Verdict",
    "backoff",
    "counter_for",
    "judge",
    "may_retry",
]
