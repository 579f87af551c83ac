"""Work in slices: it goes on where it stopped, jobs take turns, and a decision is never interrupted."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from ottla.broker.slices import FEW_ELEMENTS, MAX_HELD_ELEMENTS, SLICE_UNITS, Job, Slices
from ottla.model.pace import Bounded, TooMuchWorkError, at_pace, charge, paced, spend

MANY = range(20 * SLICE_UNITS)


async def drained(slices: Slices) -> None:
    while len(slices):  # noqa: ASYNC110 - each turn of the loop does one slice
        await asyncio.sleep(0)


def test_without_a_pace_nothing_changes() -> None:
    items = [1, 2, 3]
    assert paced(items) is items


def test_bounded_work_stops() -> None:
    with at_pace(Bounded(100)):
        assert sum(paced(range(10))) == 45
        charge(60)
        with pytest.raises(TooMuchWorkError):
            sum(paced(range(1000)))


def test_small_work_is_done_at_once() -> None:
    slices = Slices()
    job = slices.start(lambda _job: sum(paced(range(100))), 1000)
    assert job.done
    assert job.result() == 4950
    assert len(slices) == 0


def test_jobs_take_turns_and_give_what_they_were_asked_for() -> None:
    async def main() -> None:
        slices = Slices()
        order: list[str] = []
        before = gc.get_threshold()

        def work(name: str) -> int:
            total = 0
            for number in paced(MANY):
                if not number % SLICE_UNITS:
                    order.append(name)
                total += number
            return total

        jobs = [slices.start(lambda _job, name=name: work(name), 10**9) for name in "ab"]  # type: ignore[misc]
        assert not any(job.done for job in jobs)
        assert gc.get_threshold() != before
        await drained(slices)
        assert [job.result() for job in jobs] == [sum(MANY)] * 2
        assert "ab" * 5 in "".join(order)
        assert gc.get_threshold() == before

    asyncio.run(main())


def test_an_error_reaches_who_asks_and_too_much_work_is_one() -> None:
    async def main() -> None:
        slices = Slices()

        def fails(_job: Job[None]) -> None:
            for number in paced(MANY):
                if number == len(MANY) - 1:
                    raise KeyError("here")

        job, large = slices.start(fails, 10**9), slices.start(lambda _job: sum(paced(MANY)), 1000)
        await drained(slices)
        with pytest.raises(KeyError, match="here"):
            job.result()
        with pytest.raises(TooMuchWorkError):
            large.result()

    asyncio.run(main())


@pytest.mark.parametrize("interruptible", [True, False])
def test_a_peer_that_is_gone(interruptible: bool) -> None:
    async def main() -> None:
        slices = Slices()
        seen: list[int] = []
        delivered: list[str] = []

        def work(job: Job[None]) -> None:
            job.interruptible = interruptible
            for number in paced(MANY):
                seen.append(number)  # noqa: PERF402 - one by one

        job = slices.start(work, 10**9)
        job.then(lambda: delivered.append("done"))
        job.cancel()
        await drained(slices)
        assert (len(seen) == len(MANY)) is not interruptible
        assert delivered == ([] if interruptible else ["done"])

    asyncio.run(main())


def test_a_decision_is_not_interrupted() -> None:
    async def main() -> None:
        slices = Slices()

        def decide(_job: Job[int]) -> int:
            with at_pace(None):
                spend(100 * SLICE_UNITS)
                return sum(paced(MANY))

        assert slices.start(decide, 10).done

    asyncio.run(main())


def test_a_job_that_starts_the_next_one_leaves_one_slice_a_turn() -> None:
    """Large requests in one read of a connection: each starts when the one before it is done."""

    async def main() -> None:
        slices = Slices()
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
        left = 5

        def start() -> None:
            nonlocal left
            left -= 1
            job = slices.start(lambda _job: sum(paced(MANY)), 10**9)
            if left:
                job.then(start)

        start()
        most = 0
        while len(slices):
            before = slices.turns
            await asyncio.sleep(0)
            most = max(most, slices.turns - before)
        await asyncio.sleep(0)
        assert (left, most, failures, slices.held) == (0, 1, [], 0)

    asyncio.run(main())


def test_a_job_inside_of_a_job_ends_where_it_was_stepped() -> None:
    async def main() -> None:
        slices = Slices()
        ends: list[str] = []

        def outer(_job: Job[None]) -> None:
            inner = slices.start(lambda _job: sum(paced(range(SLICE_UNITS * 3))), 10**9)
            inner.then(lambda: ends.append("inner"))
            sum(paced(MANY))

        slices.start(outer, 10**9).then(lambda: ends.append("outer"))
        await drained(slices)
        assert ends == ["inner", "outer"]

    asyncio.run(main())


def test_few_elements_do_not_wait_for_all_the_large_jobs() -> None:
    async def main() -> None:
        slices = Slices()
        for _ in range(50):
            slices.start(lambda _job: sum(paced(MANY)), 10**9)
        for _ in range(200):  # each has had its first slices
            await asyncio.sleep(0)
        before = slices.turns
        job = slices.start(lambda _job: sum(paced(range(SLICE_UNITS))), 10**9)
        while not job.done:  # noqa: ASYNC110 - as in `drained`
            await asyncio.sleep(0)
        assert slices.turns - before <= 4
        await drained(slices)

    asyncio.run(main())


def test_what_the_jobs_hold_is_bounded() -> None:
    async def main() -> None:
        slices = Slices()
        large = MAX_HELD_ELEMENTS // 8
        jobs = [slices.start(lambda _job: sum(paced(range(large))), 10**9) for _ in range(40)]
        most = 0
        while len(slices):
            most = max(most, slices.held)
            await asyncio.sleep(0)
        assert all(job.done for job in jobs)
        assert most <= MAX_HELD_ELEMENTS + large + len(jobs) * (FEW_ELEMENTS + SLICE_UNITS)
        assert slices.held == 0

    asyncio.run(main())


def test_a_job_that_is_done_is_freed_without_the_collector() -> None:
    class Answer:
        pass

    async def main() -> None:
        slices = Slices()
        freed: list[bool] = []

        def work(_job: Job[Answer]) -> Answer:
            answer = Answer()
            weakref.finalize(answer, freed.append, True)
            sum(paced(MANY))
            return answer

        job = slices.start(work, 10**9)
        job.then(lambda job=job: job.result())  # type: ignore[misc]
        del job
        gc.disable()
        try:
            await drained(slices)
            assert freed == [True]
        finally:
            gc.enable()

    asyncio.run(main())
