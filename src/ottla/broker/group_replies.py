"""From a coordinator's waiter to a handler's return value: the response itself when it is there, else a Deferred.

Returning an answer that is already there as a plain value keeps pipelined requests out of recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from ottla.broker.deferred import Deferred, Unfinished
from ottla.coordinator.decisions import Waiter
from ottla.model.errors import KafkaError
from ottla.model.pace import paced

AnswerT = TypeVar("AnswerT")
ResponseT = TypeVar("ResponseT")


def ask(
    start: Callable[[Waiter], None],
    on_answer: Callable[[AnswerT], ResponseT],
    on_error: Callable[[KafkaError], ResponseT],
) -> ResponseT | Deferred[ResponseT]:
    """Start an event; its answer, or the error in its place, becomes the response."""

    def finish(answers: list[AnswerT | KafkaError]) -> ResponseT:
        answer = answers[0]
        return on_error(answer) if isinstance(answer, KafkaError) else on_answer(answer)

    answers = _Answers(1, finish)
    start(partial(answers.add, 0))
    return answers.response()


def ask_all(
    starts: list[Callable[[Waiter], None]], finish: Callable[[list[AnswerT]], ResponseT]
) -> ResponseT | Deferred[ResponseT]:
    """Start several events; `finish` gets their answers (or KafkaErrors) in the same order."""
    answers = _Answers(len(starts), finish)
    for index, start in enumerate(paced(starts, 10)):
        start(partial(answers.add, index))
    return answers.response()


class _Answers(Generic[AnswerT, ResponseT]):
    __slots__ = ("_answers", "_deferred", "_finish", "_missing")

    def __init__(self, expected: int, finish: Callable[[list[AnswerT]], ResponseT]) -> None:
        self._answers: list[AnswerT] = [None] * expected  # type: ignore[list-item]  # until `add` has put each one in
        self._missing = expected
        self._finish = finish
        self._deferred: Deferred[ResponseT] | None = None

    def add(self, index: int, answer: AnswerT) -> None:
        """The waiter of the event at `index`."""
        if isinstance(answer, KafkaError):
            answer.with_traceback(None)  # a traceback holds every frame on the way here
        self._answers[index] = answer
        self._missing -= 1
        if self._missing == 0 and self._deferred is not None:
            self._deferred.resolve(Unfinished(partial(self._finish, self._answers)))

    def response(self) -> ResponseT | Deferred[ResponseT]:
        """Called once, after all events have started."""
        if self._missing == 0:
            return self._finish(self._answers)
        self._deferred = Deferred()
        return self._deferred
