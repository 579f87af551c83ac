"""Several callers wait for one task, and some of them give up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ottla.runtime.shared_futures import outcome_of


async def _wait_and_give_up() -> tuple[list[dict[str, Any]], list[object]]:
    """What the loop's exception handler got, and the outcomes of the other callers."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    release = asyncio.Event()

    async def attempt() -> None:
        await release.wait()
        raise ConnectionError("refused")

    shared = asyncio.ensure_future(attempt())
    impatient, *others = [asyncio.ensure_future(outcome_of(shared)) for _ in range(3)]
    await asyncio.sleep(0)
    impatient.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await impatient
    release.set()
    return reported, await asyncio.gather(*others, return_exceptions=True)


def test_a_caller_that_gives_up_leaves_the_task_to_the_others_and_reports_nothing() -> None:
    """With `asyncio.shield`, Python 3.14 reports the exception although the other callers get it."""
    reported, outcomes = asyncio.run(_wait_and_give_up())
    assert [str(outcome) for outcome in outcomes] == ["refused", "refused"]
    assert reported == []


def test_the_outcome_of_a_future_that_has_ended() -> None:
    async def outcome() -> str:
        shared = asyncio.get_running_loop().create_future()
        shared.set_result("there")
        return await outcome_of(shared)

    assert asyncio.run(outcome()) == "there"
