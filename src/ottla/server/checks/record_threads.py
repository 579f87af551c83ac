"""The threads that walk the records of large batches (`ottla.broker.produce.record_workers`).

There are two threads, apart from the loop's pool, which disk syncs use. Decompression runs without the interpreter's
lock, and the walk releases the lock every few milliseconds, so that the loop continues. A thread holds one batch of at
most 100 MiB at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_THREADS = 2
ResultT = TypeVar("ResultT")


class RecordThreads:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="records")
        self._closed = False

    def run(self, work: Callable[[], ResultT], done: Callable[[ResultT | BaseException], None]) -> None:
        loop = asyncio.get_running_loop()

        def finished(future: Future[ResultT]) -> None:
            if not future.cancelled() and not self._closed:
                loop.call_soon_threadsafe(settled, future)

        def settled(future: Future[ResultT]) -> None:
            if not self._closed:
                error = future.exception()
                done(future.result() if error is None else error)

        self._threads.submit(work).add_done_callback(finished)

    def close(self) -> None:
        """Batches that are not walked yet are not appended. Their producers get no answer, and send them to the next
        leader.
        """
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
