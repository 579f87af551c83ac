"""An answer that comes later without a task: a parked fetch, an append that waits for its replicas.

There is one callback, called once. The code that parked the request resolves the answer; a closed connection cancels
the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Generic, NoReturn, TypeAlias, TypeVar

from ottla.model.pace import at_pace, current

ResponseT = TypeVar("ResponseT")


class Unfinished(Generic[ResponseT]):
    """An answer that is all there and still has to be made into a response: in slices, if the request is large."""

    __slots__ = ("finish",)

    def __init__(self, finish: Callable[[], ResponseT]) -> None:
        self.finish = finish


Resolution: TypeAlias = ResponseT | Unfinished[ResponseT] | None
"""None: the request gets no response."""


class Deferred(Generic[ResponseT]):
    __slots__ = ("_callback", "_on_cancel", "_result", "done")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self._callback: Callable[[Resolution[ResponseT]], None] | None = None
        self._on_cancel = on_cancel
        self._result: Resolution[ResponseT] = None
        self.done = False

    def then(self, callback: Callable[[Resolution[ResponseT]], None]) -> None:
        if self.done:
            callback(self._result)
        else:
            self._callback = callback

    def resolve(self, response: Resolution[ResponseT]) -> None:
        if self.done:
            return
        self.done = True
        callback, self._callback = self._callback, None
        if callback is None:
            self._result = response
        elif current.pace is None:
            callback(response)
        else:  # the work that resolves this answer belongs to a different request
            with at_pace(None):
                callback(response)

    def fail(self, error: Exception) -> None:
        """The request failed while it waited: `finish` of the answer raises the error."""

        def finish() -> NoReturn:
            raise error

        self.resolve(Unfinished(finish))

    def __await__(self) -> Generator[None, None, Resolution[ResponseT]]:
        """For a handler that has to await something before it can ask."""
        future: asyncio.Future[Resolution[ResponseT]] = asyncio.get_running_loop().create_future()
        self.then(lambda response: None if future.done() else future.set_result(response))
        return future.__await__()

    def cancel(self) -> None:
        if not self.done:
            self.done = True
            self._callback = None
            if self._on_cancel is not None:
                self._on_cancel()


Answer: TypeAlias = ResponseT | Deferred[ResponseT] | Awaitable[Resolution[ResponseT]] | None
"""What a handler returns: the response, a response that comes later, or None for a request without a response."""
