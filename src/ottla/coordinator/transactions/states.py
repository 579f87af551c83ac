"""The states of a transactional id, their ids in the log, and their transitions."""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """`value` is the status byte of the log; PrepareEpochFence (7) is a name that Kafka never writes."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def state_name(self) -> str:
        """The name that tools show."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_BETWEEN = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""No transaction is open: a new transaction may begin, and the id may expire."""

BETWEEN_TRANSACTIONS = _BETWEEN
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _BETWEEN,
    TransactionState.ONGOING: _BETWEEN | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _BETWEEN | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""The states before each state. Since transactions v2 an abort without a transaction is allowed: it bumps the epoch."""

STATES_BY_NAME = {state.state_name: state for state in TransactionState}
