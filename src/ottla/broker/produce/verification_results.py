"""The result of verifying a transactional write to a partition: the guard to append with, or the refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.log.producer_state import VerificationGuard

_UNANSWERED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class VerificationError(KafkaError):
    """`shown` is the message of the Produce response beside the code; Kafka sends a message in some cases only."""

    def __init__(self, code: ErrorCode, shown: str | None = None) -> None:
        super().__init__(code, shown or "")
        self.shown = shown


VerificationResult: TypeAlias = "VerificationGuard | VerificationError"


def verification_error(code: ErrorCode, *, adds: bool) -> VerificationError:
    """The coordinator's code as an error for producers: an error to retry becomes NOT_ENOUGH_REPLICAS, which every
    producer retries.
    """
    if code is ErrorCode.INVALID_TXN_STATE:
        return VerificationError(code, "Partition was not added to the transaction")
    if code in _UNANSWERED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return VerificationError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return VerificationError(code)
