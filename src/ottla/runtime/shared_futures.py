"""The wait of several callers for one future or task.

A caller that is cancelled leaves the future alone, as with `asyncio.shield`. The shield of Python 3.14 and later also gives
a later exception of the future to the loop's exception handler. A connection attempt that fails after its first caller
has given up is no error of the program, and must not look like a crash in the log.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def outcome_of(shared: asyncio.Future[ResultT]) -> ResultT:
    """The result or the exception of the future."""
    await asyncio.wait((shared,))
    return shared.result()
