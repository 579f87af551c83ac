"""Replicas of a large change over many turns of the loop: removed, configured, and made again under the same name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.replication import put_off
from ottla.replication.put_off import PutOff
from ottla.testing import Broker
from tests.robustness.wire import create_topic, delete_topic, fetch, produce
from tests.support.frames import RawConnection

PARTITIONS = 40


def connect(broker: Broker) -> RawConnection:
    host, port = broker.bootstrap_servers.split(":")
    return RawConnection(host, int(port), timeout=60)


def until(broker: Broker, condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():  # noqa: ASYNC110 - the broker's loop decides
            await asyncio.sleep(0.001)

    loop = broker._loop
    assert loop is not None
    asyncio.run_coroutine_threadsafe(asyncio.wait_for(wait(), 60), loop).result(70)


class Turns:
    """The turns of the loop, run when the test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def later(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def next(self) -> None:
        self.callbacks.pop(0)()


def queue(idle: Callable[[], None] = lambda: None) -> tuple[PutOff, Turns]:
    turns = Turns()
    work = PutOff(idle)
    work.later = turns.later
    return work, turns


def test_a_small_change_is_done_at_once() -> None:
    work, _ = queue()
    work.begin(put_off.AT_ONCE)
    assert not any(work.put_off(("x", index), lambda: None) for index in range(put_off.AT_ONCE))


def test_a_large_change_takes_turns_and_ends_idle() -> None:
    done: list[int] = []
    idle: list[int] = []
    work, turns = queue(lambda: idle.append(len(done)))
    work.begin(put_off.AT_ONCE + 1)
    for index in range(40):
        if not work.put_off(("x", index), lambda index=index: done.append(index)):
            done.append(index)
    assert len(done) == put_off.IN_A_TURN
    while turns.callbacks:
        before = len(done)
        turns.next()
        assert len(done) - before <= put_off.IN_A_TURN
    assert done == list(range(40))
    assert idle == [40]


def test_the_end_does_one_kind_of_work() -> None:
    done: list[str] = []
    work, turns = queue()
    work.begin(1000)
    for index in range(20):
        work.put_off(("drop", index), lambda: done.append("drop"))
        work.put_off(("make", index), lambda: done.append("make"))
    work.finish("drop")
    assert set(done) == {"drop"}
    turns.next()  # nothing is left
    assert len(done) == 20 - put_off.IN_A_TURN // 2


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """No turn comes by itself."""
    turns = Turns()
    monkeypatch.setattr(put_off, "AT_ONCE", 8)
    return turns


@pytest.fixture
def broker(tmp_path: Path, held: Turns) -> Iterator[Broker]:
    with Broker(directory=tmp_path) as running:
        with connect(running) as connection:
            assert create_topic(connection, "t", PARTITIONS) == 0
            node: Any = running.node.broker
            until(running, lambda: len(node.replicas.by_name["t"]) == PARTITIONS)
            assert produce(connection, "t", 39, b"old") == (0, 0)
        node.replicas.put_off.later = held.later
        yield running


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "data").iterdir() if path.name.startswith("t-"))


def test_a_deleted_topic_is_gone_before_its_folders(broker: Broker, held: Turns, tmp_path: Path) -> None:
    with connect(broker) as connection:
        assert delete_topic(connection, "t") == 0
        assert fetch(connection, "t", 39)[0] == 3
    assert f"t-{PARTITIONS - 1}" in folders(tmp_path)
    assert held.callbacks


def test_a_new_topic_of_the_same_name_has_its_own_log(broker: Broker, held: Turns, tmp_path: Path) -> None:
    node: Any = broker.node.broker
    with connect(broker) as connection:
        assert delete_topic(connection, "t") == 0
        assert create_topic(connection, "t", PARTITIONS) == 0
        loop = broker._loop
        assert loop is not None

        def turn() -> bool:
            if held.callbacks:
                held.next()
            return len(node.replicas.by_name.get("t", ())) == PARTITIONS and not held.callbacks

        until(broker, turn)
        assert fetch(connection, "t", 39) == (0, b"")
        assert produce(connection, "t", 39, b"new") == (0, 0)
    assert not [name for name in folders(tmp_path) if name.endswith("stray")]


def test_a_clean_stop_leaves_no_stray(broker: Broker, tmp_path: Path) -> None:
    with connect(broker) as connection:
        assert delete_topic(connection, "t") == 0
    broker.stop()
    assert {name.rsplit("-", 1)[1] for name in folders(tmp_path)} <= {"delete"}


def test_work_that_fails_does_not_hold_the_work_behind_it() -> None:
    put_off_work, turns = queue()
    put_off_work.begin(put_off.AT_ONCE + 1)
    done: list[int] = []

    def work(number: int) -> None:
        if number == put_off.IN_A_TURN:
            raise ZeroDivisionError
        done.append(number)

    at_once = [
        number
        for number in range(4 * put_off.IN_A_TURN)
        if not put_off_work.put_off(("remove", number), lambda number=number: work(number))
    ]
    done += at_once
    with pytest.raises(ZeroDivisionError):
        turns.next()
    while turns.callbacks:
        turns.next()
    assert done == [number for number in range(4 * put_off.IN_A_TURN) if number != put_off.IN_A_TURN]
    assert not put_off_work
