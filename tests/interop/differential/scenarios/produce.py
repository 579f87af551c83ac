"""Produce: every way in which a batch can be right or wrong, and idempotent producers."""

from __future__ import annotations

import gzip
import struct

from ottla.model.ids import Uuid
from ottla.protocol.generated.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, assemble_batch, build_batch, encode_record, write_crc
from tests.interop.differential.batches import T0, batch, produce, raw
from tests.interop.differential.odd_batches import OddBatch, OddRecord, old_message
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import scenario

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def ids_ready(pair: Pair) -> None:
    """Apache Kafka says "loading" until it has fetched its first block of producer ids."""
    pair.wait(InitProducerIdRequest(None, 0), 4, lambda answer: answer.error_code == 0)


def _crc(data: bytes) -> bytes:
    """`data` with the CRC that it should have."""
    patched = bytearray(data)
    write_crc(patched, 0, len(patched))
    return bytes(patched)


@scenario(ProduceRequest)
def produce_good(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 2)
    for acks in (-1, 1):
        pair.send(produce(topic, batch(b"a", b"b"), version=version, acks=acks), version)
    for compression in (GZIP, SNAPPY, LZ4, *([ZSTD] if version >= 7 else [])):
        pair.send(produce(topic, batch(b"a" * 100, b"b" * 100, compression=compression), version=version), version)
    pair.send(produce(topic, batch(None), version=version), version)
    pair.send(produce(topic, batch(b"a", key=None), version=version, partition=1), version)
    pair.send(produce(topic, batch(b"a", at=-1), version=version), version)

    def both(side: Side) -> ProduceRequest:
        data = [PartitionProduceData(i, batch(b"x")) for i in (1, 0)]
        entry = TopicProduceData(topic_id=side.topic_id(topic)) if version >= 13 else TopicProduceData(topic)
        entry.partition_data = data
        return ProduceRequest(None, -1, 5_000, [entry])

    pair.send(both, version)
    pair.send(ProduceRequest(None, -1, 5_000, []), version)


@scenario(ProduceRequest)
def produce_refused(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"))
    good = batch(b"a", b"b")
    size = len(good)
    bad = (
        b"",
        good[:-1],
        good[:40],
        good[:12],
        good + good,
        good + good[:20],
        raw(good, 20, b"\xff"),  # the CRC no longer fits
        raw(good, size - 3, b"zz"),
        raw(good, 16, b"\0"),  # magic
        raw(good, 16, b"\1"),
        raw(good, 16, b"\3"),
        raw(good, 8, struct.pack(">i", 5)),  # batch length
        raw(good, 8, struct.pack(">i", -1)),
        raw(good, 8, struct.pack(">i", size)),
        raw(good, 8, struct.pack(">i", 0x70000000)),
        _crc(raw(good, 57, struct.pack(">i", 0))),  # record count
        _crc(raw(good, 57, struct.pack(">i", 3))),
        _crc(raw(good, 57, struct.pack(">i", 1))),
        _crc(raw(good, 57, struct.pack(">i", -1))),
        _crc(raw(good, 23, struct.pack(">i", 7))),  # last offset delta
        _crc(raw(good, 23, struct.pack(">i", 0))),
        _crc(raw(good, 23, struct.pack(">i", -1))),
        _crc(raw(good, 0, struct.pack(">q", 77))),  # base offset
        _crc(raw(good, 21, struct.pack(">h", 0x20))),  # control
        _crc(raw(good, 21, struct.pack(">h", 0x10))),  # transactional
        _crc(raw(good, 21, struct.pack(">h", 0x08))),  # log append time
        _crc(raw(good, 21, struct.pack(">h", 0x05))),  # unknown codec
        _crc(raw(good, 21, struct.pack(">h", 0x40))),  # delete horizon
        _crc(raw(good, 35, struct.pack(">q", T0 - 5))),  # max timestamp
    )
    for records in bad:
        pair.send(produce(topic, records, version=version), version)
    pair.send(produce(topic, batch(b"a" * 1_100_000), version=version), version)
    for acks in (2, -2, 32767):
        pair.send(produce(topic, good, version=version, acks=acks), version)
    pair.send(produce(topic, good, version=version, partition=5), version)
    pair.send(produce(topic, good, version=version, partition=5, acks=2), version)
    pair.send(produce(topic, good, version=version, partition=-1), version)
    if version < 7:
        pair.send(produce(topic, batch(b"a", compression=ZSTD), version=version), version)


@scenario(ProduceRequest)
def produce_broken_records(pair: Pair, version: int) -> None:
    """To a compacted topic: only there Ottla looks at records (a batch is opaque), as Apache Kafka does everywhere."""
    topic = pair.create(pair.name("t"), 1, cleanup_policy="compact")
    good = batch(b"a", b"b")
    for data in (
        raw(good, 21, struct.pack(">h", 0x01)),  # gzip, snappy, lz4, zstd by its header, and nothing of the kind inside
        raw(good, 21, struct.pack(">h", 0x02)),
        raw(good, 21, struct.pack(">h", 0x03)),
        raw(good, 61, b"\x7f"),  # a record's length
        raw(good, 61, b"\x01"),
        good + b"\0",
    ):
        fitting = raw(data, 8, struct.pack(">i", len(data) - 12))
        pair.send(produce(topic, _crc(fitting), version=version), version)


@scenario(ProduceRequest)
def produce_unknown_topics(pair: Pair, version: int) -> None:
    good = PartitionProduceData(0, batch(b"a"))
    names = (pair.name("missing"), "a b", "")
    entries = [TopicProduceData(name, partition_data=[good]) for name in names]
    if version >= 13:
        entries = [
            TopicProduceData(topic_id=each, partition_data=[good])
            for each in (Uuid(b"unknown-topic-id"), Uuid(bytes(16)))
        ]
    for entry in entries:
        pair.send(ProduceRequest(None, -1, 5_000, [entry]), version)
        pair.send_unanswered(ProduceRequest(None, 0, 5_000, [entry]), version)


@scenario(ProduceRequest)
def produce_without_acks(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"))
    pair.send_unanswered(produce(topic, batch(b"a"), version=version, acks=0), version)
    pair.send(produce(topic, batch(b"b"), version=version), version)
    pair.send_unanswered(produce(topic, raw(batch(b"a"), 20, b"\xff"), version=version, acks=0), version)
    pair.send_unanswered(produce(topic, batch(b"a"), version=version, acks=0, partition=9), version)
    pair.send(produce(topic, batch(b"c"), version=version), version)


@scenario(ProduceRequest)
def produce_topic_rules(pair: Pair, version: int) -> None:
    compact = pair.create(pair.name("compact"), 1, cleanup_policy="compact")
    pair.send(produce(compact, batch(b"a", b"b", key=None), version=version), version)
    pair.send(produce(compact, batch(b"a", b"b", key=None, compression=LZ4), version=version), version)
    mixed = bytes(
        build_batch([SimpleRecord(T0, b"k", b"v"), SimpleRecord(T0, None, b"v"), SimpleRecord(T0, None, b"v")])
    )
    pair.send(produce(compact, mixed, version=version), version)
    pair.send(produce(compact, batch(b"a", None), version=version), version)
    append_time = pair.create(pair.name("append"), 1, message_timestamp_type="LogAppendTime")
    pair.send(produce(append_time, batch(b"a", b"b"), version=version), version)
    pair.send(produce(append_time, batch(b"a", b"b", at=-1), version=version), version)
    pair.send(produce(append_time, batch(b"a", b"b", compression=GZIP), version=version), version)
    small = pair.create(pair.name("small"), 1, max_message_bytes="100")
    pair.send(produce(small, batch(b"a"), version=version), version)
    pair.send(produce(small, batch(b"a" * 50), version=version), version)
    pair.send(produce(small, batch(b"a" * 5000, compression=GZIP), version=version), version)
    pair.send(produce(small, batch(b"a") + batch(b"a" * 60), version=version), version)
    tiny = pair.create(pair.name("segment"), 1, segment_bytes="1048576", max_message_bytes="3000000")
    pair.send(produce(tiny, batch(b"a" * 1_048_600), version=version), version)
    window = pair.create(
        pair.name("window"), 1, message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000"
    )
    for at in (T0, T0 + 10 * 365 * 86_400_000):
        pair.send(produce(window, batch(b"a", at=at), version=version), version)
        pair.send(produce(window, batch(b"a", b"b", at=at, compression=GZIP), version=version), version)
    future = pair.create(pair.name("future"))
    pair.send(produce(future, batch(b"a", at=T0 + 20 * 365 * 86_400_000), version=version), version)
    for name in ("gzip", "lz4", "snappy", "zstd", "uncompressed"):
        topic = pair.create(pair.name(name), 1, compression_type=name)
        for compression in (0, GZIP, SNAPPY, LZ4):
            pair.send(produce(topic, batch(b"a" * 50, b"b" * 50, compression=compression), version=version), version)
        pair.send(
            produce(topic, batch(b"a", compression=GZIP) + batch(b"b", compression=GZIP), version=version), version
        )
    lonely = pair.create(pair.name("lonely"), 1, min_insync_replicas="2")
    pair.send(produce(lonely, batch(b"a"), version=version), version)
    pair.send(produce(lonely, batch(b"a"), version=version, acks=1), version)


@scenario(ProduceRequest, versions=range(9, 14, 4))
def produce_rebuilt(pair: Pair, version: int) -> None:
    """Odd times and offsets, where a batch is stored as it is and where it is built anew."""
    odd = (
        [OddRecord(-2, 0, b"k", b"v")],
        [OddRecord(0, 0, b"k", b"v"), OddRecord(-1, 0, b"k", b"v")],
        [OddRecord(5, 0, b"k", b"v"), OddRecord(3, 0, b"l", b"w")],
        [OddRecord(0, 0, b"k", b"v"), OddRecord(1, 3, b"l", b"w"), OddRecord(2, 9, b"l", b"w")],
        [OddRecord(4, 2, b"k", None, (("h", b"x"), ("", None))), OddRecord(0, 0, b"l", b"w")],
    )
    settings = (
        {"compression_type": "lz4"},
        {"compression_type": "uncompressed"},
        {"cleanup_policy": "compact"},
        {"compression_type": "gzip", "message_timestamp_type": "LogAppendTime"},
        {"message_timestamp_type": "LogAppendTime"},
    )
    for number, configs in enumerate(settings):
        topic = pair.create(pair.name(f"t{number}"), 1, **configs)
        for records in odd:
            # A compressed batch that is stored as it is is opaque: offsets inside it are looked at on the other topics.
            opaque = "message_timestamp_type" in configs and any(record.offset for record in records)
            for codec in (0,) if opaque else (0, GZIP):
                for at in (0, T0):
                    pair.send(produce(topic, OddBatch(records, codec, at).encoded(), version=version), version)
        one = [OddRecord(0, 0, b"k", b"v")]
        for fields in (
            (1000, -1, 0), (1000, 0, -1), (-2, 0, 0), (-2, -1, -1), (-1, 3, 5), (1001, -2, 0), (1001, 0, 0), (1000, -1, 7),
            (1000, -1, 0), (1000, 0, 7), (1000, 0, 8), (1000, -1, 1),
        ):  # fmt: skip
            odd_producer = tuple(zip(("producer_id", "producer_epoch", "base_sequence"), fields, strict=True))
            pair.send(produce(topic, OddBatch(one, 0, T0, odd_producer).encoded(), version=version), version)
        wanted = [FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
        pair.send(FetchRequest(max_wait_ms=0, topics=wanted), 12)


@scenario(ProduceRequest, versions=range(3, 14, 5))
def produce_refused_as_a_whole(pair: Pair, version: int) -> None:
    """One partition's first bytes refuse the whole request, and before acks and partitions are looked at."""
    topic = pair.create(pair.name("t"), 3)
    good = batch(b"a")
    transactional = OddBatch([OddRecord(0, 0, b"k", b"v")], 0, T0, (("attributes", 0x10),)).encoded()
    bad = (
        bytes(61), bytes(13), bytes(11), b"", raw(good, 16, b"\3"), raw(good, 16, b"\1"), good + bytes(13), good + bytes(9),
        transactional, old_message(1, b"abc"), raw(good, 20, b"\xff"), raw(good, 8, struct.pack(">i", 2**31 - 1)),
        raw(good, 8, struct.pack(">i", 48)), raw(raw(good, 8, struct.pack(">i", 48)), 22, b"\4"), raw(good, 22, b"\4"),
    )  # fmt: skip

    def send(acks: int, *records: bytes, partition: int = 0) -> None:
        def build(side: Side) -> ProduceRequest:
            entry = TopicProduceData(topic_id=side.topic_id(topic)) if version >= 13 else TopicProduceData(topic)
            entry.partition_data = [PartitionProduceData(partition + i, each) for i, each in enumerate(records)]
            return ProduceRequest(None, acks, 5_000, [entry])

        pair.send(build, version)

    for records in bad:
        for acks in (-1, 2):
            send(acks, records)
            send(acks, records, partition=7)
            send(acks, good, records)
            send(acks, records, bytes(40), good)
            send(acks, transactional, records)
    send(-1, good)


@scenario(ProduceRequest, versions=range(9, 14, 4))
def produce_gzip_bomb(pair: Pair, version: int) -> None:
    """200 MiB of zeros in one record, as notes of the field say Kafka refuses."""
    topic = pair.create(pair.name("t"), 1, compression_type="lz4")
    payload = bytearray()
    encode_record(payload, 0, 0, b"k", bytes(1024))
    good = assemble_batch(payload, 1, base_offset=0, last_offset_delta=0, base_timestamp=T0, max_timestamp=T0)
    bomb = bytes(good[:61]) + gzip.compress(bytes(200 << 20), 9)
    bomb = raw(bomb, 8, struct.pack(">i", len(bomb) - 12))
    pair.send(produce(topic, _crc(raw(bomb, 21, struct.pack(">h", 1))), version=version), version)


@scenario(ProduceRequest)
def produce_idempotent(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 2)
    ids_ready(pair)
    pair.send(InitProducerIdRequest(None, 0), 4)
    pair.remember("producer", lambda answer: answer.producer_id)

    def step(sequence: int, *values: bytes, epoch: int = 0, partition: int = 0, transactional: bool = False) -> None:
        def build(side: Side) -> ProduceRequest:
            fields = {"producer_id": side.memory["producer"], "producer_epoch": epoch, "base_sequence": sequence}
            data = batch(*values, transactional=transactional, **fields)
            request = produce(topic, data, version=version, partition=partition)
            assert not isinstance(request, ProduceRequest)
            return request(side)  # type: ignore[return-value,operator]

        pair.send(build, version)

    step(0, b"a", b"b")
    step(0, b"a", b"b")  # a duplicate
    step(2, b"c")
    step(0, b"a", b"b")  # an older duplicate
    step(0, b"a")  # starts as a duplicate, ends elsewhere
    step(5, b"x")  # a gap
    step(1, b"x")
    for i in range(3, 9):
        step(i, b"y")
    step(0, b"a", b"b")  # older than the five remembered batches
    step(4, b"y")  # among the five
    step(0, b"z", epoch=1)  # a new epoch
    step(9, b"y", epoch=0)  # the old one
    step(5, b"z", epoch=2)  # a new epoch that does not begin at 0
    step(1, b"z", epoch=1)
    step(7, b"p", partition=1)  # unknown producer here, not from 0
    step(0, b"p", partition=1)
    step(2147483647, b"p", partition=1)
    step(-1, b"q", partition=1)
    step(0, b"q", partition=1, epoch=-1)
    pair.send(DescribeProducersRequest([TopicRequest(topic, [0, 1])]), 0)


@scenario(InitProducerIdRequest)
def init_producer_id(pair: Pair, version: int) -> None:
    ids_ready(pair)
    pair.send(InitProducerIdRequest(None, 0), version)
    pair.send(InitProducerIdRequest(None, 60_000), version)
    pair.send(InitProducerIdRequest(None, -1), version)
    pair.send(InitProducerIdRequest("", 60_000), version)
    pair.send(InitProducerIdRequest(None, 0, 5, 1), version)
    pair.send(InitProducerIdRequest(None, 0, 5, -1), version)
    pair.send(InitProducerIdRequest(None, 0, -1, 1), version)


@scenario(DescribeProducersRequest)
def describe_producers(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"))
    for name, partitions in (
        (topic, [0]),
        (topic, [3]),
        (topic, []),
        (pair.name("missing"), [0]),
        ("a b", [0]),
        ("", [0]),
    ):
        pair.send(DescribeProducersRequest([TopicRequest(name, partitions)]), version)
    pair.send(DescribeProducersRequest([]), version)
