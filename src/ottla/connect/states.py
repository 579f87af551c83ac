"""The states of a connector as a table: which event leads from which state to which state.

The values are the words of the status file, which the console shows. A process that ends without a last status cannot
write DEAD: the reader of the status file reports that state. `make docs` draws the table in docs/connectors.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class ConnectorState(enum.Enum):
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    FAILED = "failed"
    DEAD = "dead"


class ConnectorEvent(enum.Enum):
    """Why a connector changes its state; the value is the sentence of the docs."""

    START = "The console, or `ottla pipeline serve`, starts the connector in a process of its own."
    RUN = "The process begins an attempt, or moves records again."
    ATTEMPT_FAILED = "An attempt fails; the next attempt follows after a pause of 1 to 60 s."
    LAST_ATTEMPT_FAILED = "The fifth restart in a row fails without a record, or a run with `--once` fails."
    INPUT_ENDED = "A run with `--once` has moved all records."
    STOP = "A signal, or the stop button of the console."
    PROCESS_LOST = "The process is killed, or does not stop in time."


FIRST_STATE = ConnectorState.STOPPED

_BY_START = {
    ConnectorEvent.START: ConnectorState.STARTING,
    ConnectorEvent.RUN: ConnectorState.RUNNING,
}
_BY_END = {
    ConnectorEvent.ATTEMPT_FAILED: ConnectorState.RESTARTING,
    ConnectorEvent.LAST_ATTEMPT_FAILED: ConnectorState.FAILED,
    ConnectorEvent.STOP: ConnectorState.STOPPED,
    ConnectorEvent.PROCESS_LOST: ConnectorState.DEAD,
}

TRANSITIONS: Mapping[ConnectorState, Mapping[ConnectorEvent, ConnectorState]] = {
    ConnectorState.STOPPED: _BY_START,
    ConnectorState.STARTING: {
        ConnectorEvent.RUN: ConnectorState.RUNNING,
        ConnectorEvent.PROCESS_LOST: ConnectorState.DEAD,
    },
    ConnectorState.RUNNING: {**_BY_END, ConnectorEvent.INPUT_ENDED: ConnectorState.FINISHED},
    ConnectorState.RESTARTING: {**_BY_END, ConnectorEvent.RUN: ConnectorState.RUNNING},
    ConnectorState.FINISHED: _BY_START,
    ConnectorState.FAILED: _BY_START,
    ConnectorState.DEAD: _BY_START,
}
