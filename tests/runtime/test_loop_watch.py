"""The watch of the event loop: a callback that holds the loop is reported with its stack and its processor time."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.runtime.loop_watch import BOUNDS_S, LoopDelays, LoopWatch, Stall
from ottla.system.threads import processor_clock
from ottla.testing import Broker
from tests.support.ports import free_port

STALL_S = 0.05
LONG_S = 60.0


class WatchedStall(LoopWatch):
    """Sets an event when the stack of the holder was taken: a test holds the loop for as long as necessary and no longer.

    A busy machine makes stalls of its own, which are not the test's.
    """

    def __init__(self, holder: str, on_stall: Callable[[Stall], None]) -> None:
        super().__init__(STALL_S, on_stall, probe_s=0.001)
        self.was_taken = threading.Event()
        self._holder = holder

    def _stack(self) -> str:
        stack = super()._stack()
        if self._holder in stack:
            self.was_taken.set()
        return stack


def stall_of(hold: Callable[[threading.Event], object], holder: str) -> Stall:
    stalls: list[Stall] = []

    async def run() -> None:
        reported = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_stall(stall: Stall) -> None:
            if holder in stall.stack:
                stalls.append(stall)
                loop.call_soon_threadsafe(reported.set)

        watch = WatchedStall(holder, on_stall)
        watch.start()
        loop.call_soon(hold, watch.was_taken)
        await reported.wait()
        watch.stop()

    asyncio.run(run())
    return stalls[0]


def compute_until(event: threading.Event) -> None:
    while not event.is_set():
        sum(range(1000))


def test_a_callback_that_computes_is_reported_with_its_stack() -> None:
    stall = stall_of(compute_until, "compute_until")
    assert stall.wall_s >= STALL_S
    assert stall.stack.startswith("compute_until (tests.runtime.test_loop_watch:")
    assert "asyncio" not in stall.stack


@pytest.mark.skipif(processor_clock(threading.get_ident()) is None, reason="the system has no clock of a thread")
def test_a_callback_that_waits_used_no_processor_time() -> None:
    computed = stall_of(compute_until, "compute_until")
    waited = stall_of(threading.Event.wait, "Event.wait")
    assert waited.stack.startswith("Condition.wait (threading:")
    assert computed.processor_s is not None
    assert waited.processor_s is not None
    assert waited.processor_s < STALL_S / 2  # of at least 50 ms, on a loaded machine as well
    assert computed.processor_s > waited.processor_s


def test_a_loop_that_moves_is_counted_and_not_reported() -> None:
    stalls: list[Stall] = []

    async def run() -> LoopDelays:
        watch = LoopWatch(LONG_S, stalls.append, probe_s=0.001)
        watch.start()
        while sum(watch.delays.counts) < 5:  # noqa: ASYNC110 - the watch has no event for a loop that moves
            await asyncio.sleep(0.001)
        watch.stop()
        return watch.delays

    delays = asyncio.run(run())
    assert stalls == []
    assert delays.total_s < LONG_S


def test_a_delay_falls_into_its_bucket() -> None:
    delays = LoopDelays()
    for delay_s in (0.0004, 0.001, 0.0011, 0.3, 11.0):
        delays.add(delay_s)
    by_bound = dict(zip((*BOUNDS_S, "more"), delays.counts, strict=True))
    assert {bound: count for bound, count in by_bound.items() if count} == {0.001: 2, 0.0025: 1, 0.5: 1, "more": 1}


def test_the_watch_ends_at_once_with_its_loop() -> None:
    async def run() -> threading.Thread:
        watch = LoopWatch(LONG_S, probe_s=LONG_S)
        watch.start()
        watch.stop()
        return watch._thread

    started = time.monotonic()
    assert not asyncio.run(run()).is_alive()
    assert time.monotonic() - started < LONG_S / 2


def hold_the_node(broker: Broker, done: threading.Event) -> None:
    assert broker._loop is not None
    broker._loop.call_soon_threadsafe(compute_until, done)


def test_a_node_logs_its_stall(capsys: pytest.CaptureFixture[str]) -> None:
    logged, done = "", threading.Event()
    with Broker(properties={"ottla.loop.stall.ms": "50"}) as broker:
        watch = broker.node._loop_watch
        assert watch is not None
        take_stack = watch._stack

        def taken() -> str:
            stack = take_stack()
            if "compute_until" in stack:  # a busy machine makes stalls of its own
                done.set()
            return stack

        watch._stack = taken  # type: ignore[method-assign]
        hold_the_node(broker, done)
        while "compute_until" not in logged:
            time.sleep(0.01)
            logged += capsys.readouterr().err
    assert "loop.stalled wall_ms=" in logged
    assert "cpu_ms=" in logged
    assert not watch._thread.is_alive()


def test_metrics_have_the_delays_of_the_loop() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address, "ottla.loop.stall.ms": "250"}):
        while True:
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
            samples = {(s.name, s.labels.get("le")): s.value for s in families["ottla_loop_delay_seconds"].samples}
            if samples["ottla_loop_delay_seconds_count", None]:
                break
    assert families["ottla_loop_delay_seconds"].type == "histogram"
    assert samples["ottla_loop_delay_seconds_bucket", "+Inf"] == samples["ottla_loop_delay_seconds_count", None]
    assert samples["ottla_loop_delay_seconds_bucket", "10.0"] <= samples["ottla_loop_delay_seconds_bucket", "+Inf"]


def test_zero_switches_the_watch_off() -> None:
    with Broker(properties={"ottla.loop.stall.ms": "0"}) as broker:
        assert broker.node._loop_watch is None
