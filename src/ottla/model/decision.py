"""What a state machine answers: records to append, and the response that may leave once they are committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, ResponseT]):
    """`records` are appended atomically; only their replay changes state; `response` leaves after the commit."""

    response: ResponseT
    records: list[RecordT] = field(default_factory=list)
    atomic: bool = True
    """False: each record stands for itself, and more of them than one batch may hold go into several."""
