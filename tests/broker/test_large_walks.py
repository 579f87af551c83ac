"""No request makes the loop decompress or walk a large batch: that is counted by the thread that does it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.env.config.load import load
from ottla.protocol import records_walk
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.produce_response import ProduceResponse
from ottla.protocol.records import set_max_timestamp
from ottla.server.formatting.storage import format_standalone
from ottla.server.node import Node
from tests.interop.malformed_batches import CODECS, bomb
from tests.interop.producer_session import ask
from tests.server.test_disk_threads import PROPERTIES
from tests.support.frames import RawConnection

LOOP_BYTES = 64 * 1024
TOPICS = {
    "compacted": {"cleanup.policy": "compact"},
    "validated": {"ottla.validate.records": "true"},
    "recompressed": {"compression.type": "lz4"},
    "plain": {},
}
MAX_TIMESTAMP, FAR_FUTURE = -3, 1 << 60


class Walked:
    """How much each kind of thread has decompressed at once."""

    def __init__(self) -> None:
        self.largest: dict[str, int] = {"loop": 0, "records": 0}
        self._decompress = records_walk.decompress

    def __call__(self, codec: int, data: Any, limit: int) -> bytes:
        kind = "records" if threading.current_thread().name.startswith("records") else "loop"
        # What would be decompressed, before the limit refuses it.
        self.largest[kind] = max(self.largest[kind], min(limit, 1 << 30))
        return self._decompress(codec, data, limit)


def exchange(port: int) -> dict[str, list[int]]:
    """What a client gets, topic by topic: the codes of two produces, then two searches by time."""
    answers: dict[str, list[int]] = {}
    batch = bytearray(bomb(20, CODECS["zstd"], records=30))
    odd = bytearray(batch)
    set_max_timestamp(odd, 0, 0, FAR_FUTURE)  # a header that lies about the records' times
    with RawConnection("127.0.0.1", port) as connection:
        for topic in TOPICS:
            data = [
                TopicProduceData(topic, partition_data=[PartitionProduceData(0, bytes(each))]) for each in (batch, odd)
            ]
            codes = []
            for each in data:
                body = ask(connection, ProduceRequest(None, -1, 10_000, [each]), 9)
                codes.append(ProduceResponse.decode(body, 0, 9)[0].responses[0].partition_responses[0].error_code)
            for time_ms in (1, MAX_TIMESTAMP):
                asked = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, time_ms)])]
                body = ask(connection, ListOffsetsRequest(-1, 0, asked), 9)
                codes.append(ListOffsetsResponse.decode(body, 0, 9)[0].topics[0].partitions[0].offset)
            answers[topic] = codes
    return answers


@pytest.mark.timeout(180)
def test_large_batches_are_walked_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked = Walked()
    monkeypatch.setattr(records_walk, "decompress", walked)

    async def main() -> dict[str, list[int]]:
        config = load({**PROPERTIES, "log.dirs": str(tmp_path / "data")})
        format_standalone(config)
        node = Node(config)
        await node.start()
        try:
            broker = node.broker
            assert broker is not None
            for name, settings in TOPICS.items():
                configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
                request = CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=configs)])
                response: Any = await broker.controller.submit(request, None)
                assert response.topics[0].error_code == 0
            async with asyncio.timeout(60):
                while set(TOPICS) - set(broker.replicas.by_name):  # noqa: ASYNC110 - the image comes by the loop
                    await asyncio.sleep(0.01)
            port = int(node.bootstrap_servers.rpartition(":")[2])
            return await asyncio.to_thread(exchange, port)
        finally:
            await node.stop()

    answers = asyncio.run(main())
    # The header's lie makes a plain topic look at the records too, and is corrected.
    assert answers == {topic: [0, 0, 0, 0] for topic in TOPICS}
    assert walked.largest["loop"] == LOOP_BYTES
    assert walked.largest["records"] > LOOP_BYTES
