"""The threads that walk the records of large batches (`ottla.broker.produce.record_workers`).

There are two threads, apart from the loop's pool, which disk syncs use. Decompression runs without the interpreter's
lock, and the walk releases the lock every few milliseconds, so that the loop continues. A thread holds one batch of at
most 100 MiB at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_THREADS = 2
ResultT = TypeVar("ResultT")


class RecordThreads:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="records")
        self._closed = False

    def run(self, work: Callable[[], ResultT], done: Callable[[ResultT | BaseException], None]) -> None:
        def settled(future: asyncio.Future[ResultT]) -> None:
            if not self._closed and not future.cancelled():
                error = future.exception()
                done(future.result() if error is None else error)

        asyncio.get_running_loop().run_in_executor(self._threads, work).add_done_callback(settled)

    def close(self) -> None:
        """Batches that are not walked yet are not appended. Their producers get no answer, and send them to the next
        leader.
        """
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
