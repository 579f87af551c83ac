"""Mutated requests against a running server: `python -m tests.robustness.fuzz --frames 1000000`.

The seeds are valid frames: recorded from real clients (tests/protocol/golden), made of every API's classes, and built
for a topic that exists, so that mutations get past the first check. One frame in ten goes to the controller's listener,
where the seeds are requests of nodes that lie (tests/robustness/node_requests.py). A frame counts when it was sent on an open
connection and was answered, refused by closing, or left waiting (a long poll) for a moment.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import struct
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from ottla.broker.apis import BROKER_APIS, CONTROLLER_APIS
from ottla.protocol.api import api, request_class
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch
from tests.protocol.message_values import random_message
from tests.protocol.mutations import mutated
from tests.robustness.node_requests import NODE_APIS, Facts, plausible
from tests.robustness.ping import Pinger
from tests.robustness.server_process import CLUSTER_ID, ROOT, ServerProcess
from tests.robustness.wire import create_topic, encoded, metadata, produce
from tests.support.frames import RawConnection

TOPIC = "fuzz"
PATIENCE_S = 0.03
LASTING = {19: 200, 37: 100, 8: 5000, 11: 3000, 20: 2000, 33: 2000, 44: 2000}
"""API key -> how many frames at most: these leave something behind when a mutation happens to be valid (topics,
partitions, groups, members, settings), and memory is to show what bad input costs, not good."""

PROPERTIES = {"auto.create.topics.enable": "false", "connections.max.idle.ms": "600000"}


def controller_seeds() -> dict[int, list[bytes]]:
    """Payloads for the controller's listener. Epochs stay small: a frame that raises the epoch costs an election."""
    random = Random(12)
    payloads: dict[int, list[bytes]] = {key: [] for key in CONTROLLER_APIS}
    facts = Facts(cluster_id=CLUSTER_ID, epoch=1, end_offset=10, node_ids=(1,), largest_epoch=2)
    for key, seeded in payloads.items():
        cls = request_class(key)
        for version in range(api(key).min_version, api(key).max_version + 1):
            if key in NODE_APIS:
                seeded += [encoded(plausible(random, cls, version, facts), version)[4:] for _ in range(8)]
            else:
                seeded.append(encoded(random_message(random, cls, version, nulls=False), version)[4:])
    return payloads


def seeds(topic_id: bytes) -> dict[int, list[bytes]]:
    """Valid request payloads (without the length) by API key."""
    found: dict[int, list[bytes]] = {key: [] for key in BROKER_APIS}
    for line in (ROOT / "tests/protocol/golden/frames.txt").read_text().splitlines():
        kind, key, _, data = line.split()
        if kind == "request" and int(key) in found:
            found[int(key)].append(bytes.fromhex(data))
    random = Random(11)
    for key in BROKER_APIS:
        cls = request_class(key)
        for version in range(api(key).min_version, api(key).max_version + 1):
            found[key].append(encoded(random_message(random, cls, version, nulls=False), version)[4:])
    for request, versions in _on_the_topic(topic_id):
        found[request.API_KEY] += [encoded(request, version)[4:] for version in versions] * 3
    return found


def _on_the_topic(topic_id: bytes):
    records = [SimpleRecord(1_700_000_000_000 + i, b"key", b"value %d" % i) for i in range(3)]
    for compression in range(5):
        batch = bytes(build_batch(records, compression=compression))
        data = [PartitionProduceData(0, batch)]
        for acks in (-1, 1, 0):
            yield ProduceRequest(None, acks, 100, [TopicProduceData(TOPIC, partition_data=data)]), range(7, 13)
            yield ProduceRequest(None, acks, 100, [TopicProduceData(topic_id=topic_id, partition_data=data)]), (13,)
    idempotent = bytes(build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0))
    yield (
        ProduceRequest(None, -1, 100, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, idempotent)])]),
        (9, 12),
    )
    wanted = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
    yield FetchRequest(max_wait_ms=5, min_bytes=1, topics=[FetchTopic(TOPIC, partitions=wanted)]), range(4, 13)
    yield (
        FetchRequest(max_wait_ms=5, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=wanted)]),
        range(13, 19),
    )
    for timestamp in (-1, -2, -3, -4, -5, 1_700_000_000_001):
        times = [ListOffsetsPartition(0, timestamp=timestamp)]
        yield ListOffsetsRequest(-1, topics=[ListOffsetsTopic(TOPIC, times)]), range(1, 11)
    yield DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 1)])], 100), range(3)


class Frames:
    """Seeded damage: the payload, and now and then the length in front of it."""

    def __init__(self, topic_id: bytes, count: int, seed: int) -> None:
        self._random = Random(seed)
        self._for_brokers = seeds(topic_id)
        self._for_controllers = controller_seeds()
        self._left = dict(LASTING)
        self.remaining = count

    def take(self, *, controller: bool) -> bytes | None:
        """A frame for a broker's listener or for the controller's; None at the end."""
        if self.remaining <= 0:
            return None
        self.remaining -= 1
        random = self._random
        payload = mutated(random, self._seed(self._for_controllers if controller else self._for_brokers))
        size = len(payload)
        if random.random() < 0.02:
            size = random.choice([0, -1, size - 1, size + 1, 2**31 - 1, -(2**31), 104857600, 104857601, size * 2])
        return struct.pack(">i", size) + payload

    def _seed(self, payloads: dict[int, list[bytes]]) -> bytes:
        while True:
            key = self._random.choice(sorted(payloads))
            left = self._left.get(key, 1)
            if left > 0:
                self._left[key] = left - 1 if key in self._left else 1
                if key not in LASTING:
                    del self._left[key]
                return self._random.choice(payloads[key])


class Worker(asyncio.Protocol):
    """One connection after the other, one frame at a time on each."""

    def __init__(self, fuzz: Fuzz) -> None:
        self._fuzz = fuzz
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()
        self.controller = False
        """Whether the present connection is one to the controller's listener."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer.clear()
        self._send()

    def _send(self) -> None:
        frame = self._fuzz.frames.take(controller=self.controller)
        assert self._transport is not None
        if frame is None:
            self._transport.abort()
            return
        self._transport.write(frame)
        self._timer = self._fuzz.loop.call_later(PATIENCE_S, self._give_up)

    def _give_up(self) -> None:
        self._fuzz.outcomes["waiting"] += 1
        self._timer = None
        assert self._transport is not None
        self._transport.abort()

    def _settled(self, outcome: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._fuzz.outcomes[outcome] += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= 4:
            size = struct.unpack_from(">i", self._buffer)[0]
            if len(self._buffer) >= size + 4:
                del self._buffer[: size + 4]
                self._settled("answered")
                self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._settled("closed")
        self._fuzz.reconnect(self)


class Fuzz:
    def __init__(self, server: ServerProcess, frames: Frames, workers: int = 24) -> None:
        self.frames = frames
        self.outcomes: Counter[str] = Counter()
        self._ports = itertools.cycle([server.port] * 9 + [server.controller_port])
        self._controller_port = server.controller_port
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop

    def run(self) -> Counter[str]:
        asyncio.run(self._run())
        return self.outcomes

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._idle = 0
        self._done = self.loop.create_future()
        for _ in range(self._workers):
            self.reconnect(Worker(self))
        await self._done

    def reconnect(self, worker: Worker) -> None:
        if self.frames.remaining <= 0:
            self._idle += 1
            if self._idle == self._workers and not self._done.done():
                self._done.set_result(None)
            return
        task = self.loop.create_task(self._connect(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, worker: Worker) -> None:
        port = next(self._ports)
        worker.controller = port == self._controller_port
        try:
            await self.loop.create_connection(lambda: worker, "127.0.0.1", port)
        except OSError as error:
            if not self._done.done():
                self._done.set_exception(error)


def prepare(server: ServerProcess) -> bytes:
    """The topic with a little in it; its id."""
    with RawConnection("127.0.0.1", server.port) as connection:
        assert create_topic(connection, TOPIC, 2) == 0
        for partition in range(2):
            assert produce(connection, TOPIC, partition, b"a", b"b", b"c")[0] == 0
        return bytes(metadata(connection, TOPIC).topics[0].topic_id)


def run(server: ServerProcess, count: int, seed: int) -> str:
    """Send `count` mutated frames to a fresh server; the figures."""
    topic_id = prepare(server)
    Fuzz(server, Frames(topic_id, min(2000, count), seed + 1)).run()  # handlers and buffers are loaded now
    before = server.rss_bytes()
    started = time.monotonic()
    with Pinger(server.port, server.pid) as pinger:
        outcomes = Fuzz(server, Frames(topic_id, count, seed)).run()
    seconds = time.monotonic() - started
    grown = (server.rss_bytes() - before) / 2**20
    server.assert_no_traceback()
    assert sum(outcomes.values()) == count, outcomes
    assert grown < 50, f"memory grew by {grown:.1f} MiB"
    server.kill()
    server.start()  # nothing was written that cannot be read again
    server.assert_no_traceback()
    return (
        f"{count} mutated frames in {seconds:.0f} s: {dict(outcomes)}; others meanwhile {pinger.waits}; "
        f"memory {before / 2**20:.0f} MiB, grew by {grown:.1f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as temporary,
        ServerProcess(options.dir or Path(temporary), properties=PROPERTIES) as server,
    ):
        print(run(server, options.frames, options.seed))


if __name__ == "__main__":
    main()
