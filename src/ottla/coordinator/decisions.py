"""The result of a coordinator's event: records to append, and answers that leave once those records are committed.

A waiter is opaque to the state machines: they store a waiter and return it inside a `CoordinatorAnswer`; they never
call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ottla.coordinator.records import CoordinatorRecord
from ottla.model.decision import Decision
from ottla.model.errors import KafkaError

Waiter: TypeAlias = Callable[[Any], None]
"""Called exactly once with the response message, or with the KafkaError that took its place."""


class CoordinatorAnswer(NamedTuple):
    waiter: Waiter
    response: object
    """A response message, or a KafkaError."""


GroupDecision: TypeAlias = Decision[CoordinatorRecord, list[CoordinatorAnswer]]
TimedOperation: TypeAlias = Callable[[], GroupDecision]
RecordT = TypeVar("RecordT")


def answered(waiter: Waiter, response: object, *records: RecordT) -> Decision[RecordT, list[CoordinatorAnswer]]:
    """A decision with one answer."""
    return Decision([CoordinatorAnswer(waiter, response)], list(records))


class Draft:
    """A decision under construction."""

    __slots__ = ("answers", "records")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.answers: list[CoordinatorAnswer] = []

    def answer(self, waiter: Waiter, response: object) -> None:
        self.answers.append(CoordinatorAnswer(waiter, response))

    def refuse(self, waiter: Waiter, error: KafkaError) -> None:
        self.answers.append(CoordinatorAnswer(waiter, error))

    def decide(self, *, atomic: bool = True) -> GroupDecision:
        return Decision(self.answers, self.records, atomic)
