"""A per-item result of an admin call: an error code and the message that goes with it."""

from __future__ import annotations

from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError

MAX_RECORDS_PER_USER_OP = 10_000
"""Kafka's limit of records for one user request."""


class ApiError(NamedTuple):
    code: ErrorCode
    message: str | None

    @property
    def failed(self) -> bool:
        return self.code != ErrorCode.NONE


OK = ApiError(ErrorCode.NONE, None)


def generic(code: ErrorCode) -> ApiError:
    """With the table's message spelled out."""
    return ApiError(code, code.message)


def refused(error: KafkaError) -> ApiError:
    """From a raised refusal: as Kafka does, a message that only repeats the table's stays away."""
    return ApiError(error.code, None if error.message == error.code.message else error.message)
