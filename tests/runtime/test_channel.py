"""A channel on a real socket: order, corking, turns, peers that do not read, peers that are gone."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.connection import Connection
from ottla.broker.deferred import Deferred
from ottla.log.open_files import SharedFile
from ottla.log.results import LogSlice
from ottla.runtime.buffers import BufferPool
from ottla.runtime.busy_poll import BusyPoll
from ottla.runtime.channel import Channel
from ottla.runtime.disk import DiskStorage
from ottla.server.run import new_event_loop
from ottla.system.hangups import Hangups

MIB = 1024 * 1024


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class CountingSocket(socket.socket):
    """Counts the writes."""

    sends = 0

    def send(self, *arguments: Any) -> int:
        self.sends += 1
        return super().send(*arguments)


class Owner:
    """A listener's part."""

    busy_poll: BusyPoll
    memory = None
    answers = None
    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.bad_frames: list[str] = []
        self.closed: list[Channel] = []

    def on_bad_frame(self, channel: Channel, reason: str) -> None:
        self.bad_frames.append(reason)

    def on_closed(self, channel: Channel) -> None:
        self.closed.append(channel)


class Echo:
    """A dispatcher that answers each frame by a rule: bytes at once, a Deferred later."""

    def __init__(self, rule: Callable[[bytes], Any]) -> None:
        self.rule = rule
        self.seen: list[bytes] = []

    def dispatch(self, connection: Connection, data: memoryview) -> None:
        payload = bytes(data)
        self.seen.append(payload)
        answer = self.rule(payload)
        if isinstance(answer, Deferred):
            connection.wait_for(answer, Plain(), Version(), None, 0)  # type: ignore[arg-type]
        elif answer is not None:
            connection.peer.send(answer if isinstance(answer, list) else [answer])


class Plain:
    def frame(self, response: bytes, version: int, correlation_id: int) -> list[bytes]:
        return [response]


class NoMetrics:
    metrics = None


class Version:
    version = 0
    is_large = False
    broker = NoMetrics()


class Rig:
    """One end is the channel's, the other the test's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rule: Callable[[bytes], Any], *, max_frame: int = MIB) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        listening.close()
        self.socket = CountingSocket(fileno=accepted.detach())
        self.socket.setblocking(False)
        self.client.setblocking(False)
        self.owner, self.echo = Owner(), Echo(rule)
        self.owner.busy_poll = BusyPoll(loop, 200)
        self.channel = Channel(loop, self.socket, BufferPool(), max_frame, self.owner)  # type: ignore[arg-type]
        self.channel.start(
            Connection(self.echo, self.channel, client_host="h", client_port=1, listener="L")  # type: ignore[arg-type]
        )
        self.loop = loop

    async def ask(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.client, data)

    async def read(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = await asyncio.wait_for(self.loop.sock_recv(self.client, count - len(got)), 10)
            if not piece:
                break
            got += piece
        return got

    def close(self) -> None:
        self.client.close()
        self.channel.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for is a channel's state
            await asyncio.sleep(0.01)


@pytest.fixture(params=["uvloop", "asyncio"])
def play(request):
    """Run a coroutine function with the loop; on both loops that Ottla runs on."""

    def run(main: Callable[[asyncio.AbstractEventLoop], Any]) -> None:
        factory = new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:

            async def whole() -> None:
                errors: list[Any] = []
                loop = asyncio.get_running_loop()
                loop.set_exception_handler(lambda _, context: errors.append(context))
                await main(loop)
                await asyncio.sleep(0)
                assert errors == []

            runner.run(whole())

    return run


def test_pipelined_requests_are_answered_in_order_with_one_write(play):
    async def main(loop):
        rig = Rig(loop, lambda payload: frame(payload.upper()))
        requests = [b"a%d" % i for i in range(100)]
        await rig.ask(b"".join(map(frame, requests)))
        expected = b"".join(frame(r.upper()) for r in requests)
        assert await rig.read(len(expected)) == expected
        assert rig.socket.sends <= 3
        rig.close()

    play(main)


def test_requests_in_single_bytes(play):
    async def main(loop):
        rig = Rig(loop, frame)
        for byte in frame(b"hello") + frame(b""):
            await rig.ask(bytes([byte]))
            await asyncio.sleep(0)
        assert await rig.read(13) == frame(b"hello") + frame(b"")
        rig.close()

    play(main)


def test_a_waiting_request_holds_the_later_ones_back(play):
    async def main(loop):
        parked: list[Deferred] = []

        def rule(payload: bytes) -> Any:
            if payload == b"wait":
                parked.append(Deferred())
                return parked[-1]
            return frame(payload)

        rig = Rig(loop, rule)
        await rig.ask(frame(b"1") + frame(b"wait") + frame(b"2") + frame(b"wait") + frame(b"3"))
        assert await rig.read(5) == frame(b"1")
        await until(lambda: parked)
        await asyncio.sleep(0.02)
        assert rig.echo.seen == [b"1", b"wait"]
        parked[0].resolve(frame(b"waited"))
        assert await rig.read(15) == frame(b"waited") + frame(b"2")
        parked[1].resolve(frame(b"again"))
        assert await rig.read(14) == frame(b"again") + frame(b"3")
        rig.close()

    play(main)


def test_a_deferred_that_is_ready_at_once_keeps_the_order(play):
    async def main(loop):
        def rule(payload: bytes) -> Any:
            if payload.startswith(b"d"):
                ready = Deferred()
                ready.resolve(frame(payload))
                return ready
            return frame(payload)

        rig = Rig(loop, rule)
        sent = b"".join(frame(p) for p in (b"1", b"2", b"d3", b"4", b"d5", b"d6", b"7"))
        await rig.ask(sent)
        assert await rig.read(len(sent)) == sent
        rig.close()

    play(main)


def test_a_peer_that_never_reads_is_not_read_either(play):
    async def main(loop):
        answer = frame(bytes(100_000))
        rig = Rig(loop, lambda _: answer)
        rig.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rig.ask(frame(b"give") * 1_000_000), 0.7)
        handled = len(rig.echo.seen)
        held = sum(len(piece) for piece in rig.channel._outgoing)
        assert handled < 200
        assert held <= len(answer) + 65536
        got = await rig.read(handled * len(answer))  # and when it reads, it gets everything
        assert len(got) == handled * len(answer)
        rig.close()

    play(main)


@pytest.mark.parametrize("refusal", [None, errno.ENOTSUP, errno.EINVAL])
def test_file_regions_and_bytes_in_order(play, tmp_path, monkeypatch, refusal):
    """Also of a file system that has no sendfile."""

    def refuse(*_: int) -> int:
        raise OSError(refusal, os.strerror(refusal))

    if refusal is not None:
        monkeypatch.setattr(os, "sendfile", refuse)
    content = os.urandom(3 * MIB)
    (tmp_path / "segment").write_bytes(content)
    shared = SharedFile(DiskStorage().open(str(tmp_path / "segment")))

    async def main(loop):
        def rule(payload: bytes) -> Any:
            return [b"<", LogSlice(shared, 10, 2 * MIB, 0, 0), b">"] if payload == b"file" else payload

        rig = Rig(loop, rule)
        await rig.ask(frame(b"one") + frame(b"file") + frame(b"two") + frame(b"file"))
        region = b"<" + content[10 : 10 + 2 * MIB] + b">"
        expected = b"one" + region + b"two" + region
        assert await rig.read(len(expected)) == expected
        rig.close()

    play(main)


def test_a_bad_length_closes_after_the_answers_before_it(play):
    async def main(loop):
        rig = Rig(loop, frame)
        await rig.ask(frame(b"ok") + struct.pack(">i", -1))
        assert await rig.read(6) == frame(b"ok")
        assert await rig.read(1) == b""
        assert rig.owner.closed == [rig.channel]
        assert "-1" in rig.owner.bad_frames[0]
        rig.close()

    play(main)


def test_others_have_their_turn(play):
    """A peer with thousands of requests in the buffer, each a little slow, does not keep another waiting."""

    async def main(loop):
        def slow(payload: bytes) -> bytes:
            end = loop.time() + 0.0005
            while loop.time() < end:
                pass
            return frame(payload)

        flood, other = Rig(loop, slow), Rig(loop, frame)
        await flood.ask(frame(b"") * 2000)  # a second of work
        await asyncio.sleep(0)
        before = len(flood.echo.seen)
        await other.ask(frame(b"hello"))
        assert await other.read(9) == frame(b"hello")
        assert len(flood.echo.seen) - before < 1000, "half a second of work"
        assert len(flood.echo.seen) < 1500
        assert await flood.read(8000) == frame(b"") * 2000
        flood.close()
        other.close()

    play(main)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="it is libuv's epoll that loses a reset")
def test_a_reset_with_the_last_bytes_is_noticed(play):
    """libuv reports an error once: who only takes the bytes then never hears of the reset."""

    async def main(loop):
        hangups = Hangups(loop)
        rigs = [Rig(loop, lambda _: None) for _ in range(50)]
        for rig in rigs:
            hangups.watch(rig.channel.fd, rig.channel.on_hangup)
            rig.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rig.client.send(frame(b"last") + b"\0\0\0")
            rig.client.close()
        await until(lambda: all(rig.channel.closed for rig in rigs))
        hangups.close()

    play(main)


def test_a_bug_costs_its_connection_only(play, capsys):
    async def main(loop):
        def rule(payload: bytes) -> bytes:
            if payload == b"bug":
                raise ZeroDivisionError
            return frame(payload)

        rig, other = Rig(loop, rule), Rig(loop, rule)
        await rig.ask(frame(b"fine") + frame(b"bug") + frame(b"never"))
        assert await rig.read(8) == frame(b"fine")
        assert await rig.read(1) == b""
        await other.ask(frame(b"fine"))
        assert await other.read(8) == frame(b"fine")
        rig.close()
        other.close()

    play(main)
    assert "connection.failed" in capsys.readouterr().err


def test_closing_cancels_what_waits(play):
    async def main(loop):
        cancelled: list[bool] = []
        rig = Rig(loop, lambda _: Deferred(lambda: cancelled.append(True)))
        await rig.ask(frame(b"wait"))
        await until(lambda: rig.channel.connection.busy)
        rig.channel.close()
        rig.channel.close()
        assert cancelled == [True]
        assert rig.owner.closed == [rig.channel]
        rig.close()

    play(main)
