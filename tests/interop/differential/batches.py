"""Batches to produce, good and bad: fixed content and timestamps, so that both servers get the same bytes."""

from __future__ import annotations

from typing import Any

from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch
from tests.interop.differential.pair import Request, Side

T0 = 1_700_000_000_000
"""2023-11-14: never close to the present."""


def batch(
    *values: bytes | None, key: bytes | None = b"k", at: int = T0, step: int = 10, compression: int = 0, **fields: Any
) -> bytes:
    """One batch, one record per value, `step` ms apart; `fields` go to build_batch (producer_id, base_sequence ...)."""
    records = [SimpleRecord(at + i * step, key, value) for i, value in enumerate(values)]
    return bytes(build_batch(records, compression=compression, **fields))


def produce(
    topic: str,
    records: bytes | None,
    *,
    version: int,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> Request:
    """Produce to one partition, by name or (from v13) by id."""

    def build(side: Side) -> ProduceRequest:
        data = [PartitionProduceData(partition, records)]
        entry = (
            TopicProduceData(topic_id=side.topic_id(topic), partition_data=data)
            if version >= 13
            else TopicProduceData(topic, partition_data=data)
        )
        return ProduceRequest(transactional_id, acks, 5_000, [entry])

    return build


def raw(data: bytes, position: int, new: bytes) -> bytes:
    """`data` with some bytes replaced, its CRC left as it was."""
    return data[:position] + new + data[position + len(new) :]
