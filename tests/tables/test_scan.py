"""Segment files give the rows that the wire gives: every codec, sizes, headers, nulls, transactions, any range."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.offset_timestamps import LATEST
from ottla.protocol.records import SimpleRecord, build_batch, iterate_records, write_crc
from ottla.tables import segments, slices
from ottla.tables.decode import SCHEMA
from ottla.tables.fetch import FetchPlan, read_range
from ottla.tables.segments import bounds, scan_range
from ottla.tables.topics import READ_COMMITTED, TableError, TopicMetadata, settings_from
from tests.interop.ottla_server import OttlaServer

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = OttlaServer(
        tmp_path_factory.mktemp("scanned"),
        properties={"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "2"},
    )
    server.start()
    yield server
    server.stop()


def draw_record(draw: random.Random) -> dict:
    """Often as large as the one before, so that runs and single records follow each other."""
    size = draw.choice([0, 10, 100, 100, 100, 1000, draw.randrange(20_000)])
    return {
        "value": draw.choice([None, draw.randbytes(size), b"v" * size, b"v" * size]),
        "key": draw.choice([None, b"", b"key", draw.randbytes(draw.randrange(90))]),
        "timestamp": 1_700_000_000_000 + draw.choice([0, 1, draw.randrange(10**9)]),
        "headers": draw.choice([None, None, [("a", b"1"), ("b", None), ("", b"")]]),
    }


def fill(servers: str, topic: str, codec: str, draw: random.Random) -> None:
    """Transactions of many sizes, a third of them aborted, the last one left open."""
    producers = []
    for number in range(2):
        one = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"{topic}-{number}", "compression.type": codec, "log_level": 3, "linger.ms": 2,
             "transaction.timeout.ms": 900_000}  # the open one stays open
        )  # fmt: skip
        one.init_transactions(30)
        producers.append(one)
    for _ in range(20):
        for one in producers:
            one.begin_transaction()
        for _ in range(draw.randrange(1, 50)):
            record, repeats = draw_record(draw), draw.choice([1, 1, 2, 30])
            for _ in range(repeats):
                draw.choice(producers).produce(topic, partition=0, **record)
        for one in draw.sample(producers, 2):
            (one.abort_transaction if draw.random() < 0.33 else one.commit_transaction)(30)
    producers[0].begin_transaction()
    producers[0].produce(topic, b"open", partition=0)
    producers[0].flush(30)
    producers[1].begin_transaction()
    producers[1].produce(topic, b"after it", partition=0)
    producers[1].commit_transaction(30)
    # Nothing ends the first one: its producer goes as it is.


def table(batches) -> pa.Table:
    found = pa.Table.from_batches([batch for batch in batches if batch.num_rows] or [], SCHEMA)
    found.validate(full=True)
    return found.combine_chunks()


@pytest.mark.parametrize("codec", CODECS)
def test_files_and_wire_give_the_same_rows(server, codec, monkeypatch):
    monkeypatch.setattr(segments, "CHUNK_BYTES", 50_000)
    draw = random.Random(codec)
    name, partition = f"scan-{codec}", TopicPartition(f"scan-{codec}", 0)
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, config={"segment.bytes": "1048576", "retention.ms": "-1"})])[name].result(30)
    fill(server.bootstrap_servers, name, codec, draw)
    path, settings = str(server.data_dir), settings_from({"bootstrap.servers": server.bootstrap_servers})
    if codec == "none":
        assert len(segments.segments(path, partition)) > 1, "several files are scanned"
    rows = []
    for isolation in (0, READ_COMMITTED):
        first, end = bounds(path, partition, isolation)
        with TopicMetadata(settings) as cluster:
            assert cluster.offsets({partition: LATEST}, isolation_level=isolation) == {partition: end}
        ranges = [(first, end), *(tuple(sorted(draw.sample(range(first, end + 1), 2))) for _ in range(8))]
        for start, stop in ranges:
            plan = FetchPlan(
                topic=name, partition=0, start=start, end=stop, isolation_level=isolation, with_headers=True,
                fetch_bytes=100_000,
            )  # fmt: skip
            direct = table(scan_range(path, plan))
            assert direct.equals(table(read_range(settings, plan))), (isolation, start, stop)
            if (start, stop) == (first, end):
                rows.append(direct.num_rows)
    assert rows[0] > rows[1] > 100, "aborted records were there, and left out"


SMALL = st.binary(max_size=40) | st.none()
RECORDS = st.lists(
    st.builds(
        SimpleRecord,
        st.integers(0, 2**42),
        SMALL,
        st.binary(max_size=300) | st.none() | st.integers(0, 3000).map(bytes),
        st.lists(st.tuples(st.text(max_size=8), SMALL), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
)
REPEATED = st.tuples(RECORDS, st.integers(1, 40)).map(lambda one: one[0] * one[1])


def folder_with(tmp_path_factory, batches: list[bytearray]) -> str:
    place = tmp_path_factory.mktemp("log")
    (place / "t-0").mkdir()
    (place / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
    return str(place)


@given(batches=st.lists(st.tuples(REPEATED, st.sampled_from([0, 1, 2, 3, 4])), min_size=1, max_size=5))
def test_it_decodes_what_the_walker_decodes(tmp_path_factory, batches):
    built, offset = [], 0
    for records, compression in batches:
        built.append(build_batch(records, base_offset=offset, compression=compression))
        offset += len(records)
    wanted = [
        (one.offset, one.timestamp, one.key, one.value, [tuple(pair) for pair in one.headers])
        for batch in built
        for one in iterate_records(batch)
    ]
    plan = FetchPlan(topic="t", partition=0, start=0, end=offset, with_headers=True)
    rows = table(scan_range(folder_with(tmp_path_factory, built), plan)).to_pylist()
    assert [
        (row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"],
         [(pair["key"], pair["value"]) for pair in row["headers"] or ()])
        for row in rows
    ] == wanted  # fmt: skip


def twenty(compression: int) -> list[bytearray]:
    return [
        build_batch([SimpleRecord(5, b"k", b"%04d" % n * 50)] * 10, base_offset=n * 10, compression=compression)
        for n in range(20)
    ]


@pytest.mark.parametrize("compression", [0, 4])
def test_what_comes_before_damage_is_given_out(tmp_path_factory, monkeypatch, compression):
    monkeypatch.setattr(segments, "CHUNK_BYTES", 1)
    batches = twenty(compression)
    batches[15][-1] ^= 1
    scan = scan_range(folder_with(tmp_path_factory, batches), FetchPlan(topic="t", partition=0, start=0, end=200))
    assert [next(scan).column("offset")[0].as_py() for _ in range(15)] == list(range(0, 150, 10))
    with pytest.raises(TableError, match="the batch at offset 150 has a wrong CRC"):
        next(scan)


def test_what_another_thread_copies_is_there_before_it_is_given_out(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(segments, "CHUNK_BYTES", 1)
    batches = [build_batch([SimpleRecord(5, b"k", (b"%03d" % n) * 250)] * 800, base_offset=n * 800) for n in range(12)]
    batches[10][-1] ^= 1
    scan = scan_range(folder_with(tmp_path_factory, batches), FetchPlan(topic="t", partition=0, start=0, end=9600))
    for n in range(10):
        value = next(scan).column("value")
        assert value.nbytes > slices._FEW_BYTES
        assert set(value.to_pylist()) == {(b"%03d" % n) * 250}
    with pytest.raises(TableError, match="the batch at offset 8000 has a wrong CRC"):
        next(scan)


def test_a_scan_that_is_not_read_to_its_end_leaves_no_thread(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(segments, "CHUNK_BYTES", 1)
    scan = scan_range(folder_with(tmp_path_factory, twenty(0)), FetchPlan(topic="t", partition=0, start=0, end=200))
    assert next(scan).num_rows == 10
    assert any(thread.name.startswith("scan") for thread in threading.enumerate())
    scan.close()
    assert not any(thread.name.startswith("scan") for thread in threading.enumerate())


def test_a_record_that_ends_outside_its_batch_is_refused(tmp_path_factory):
    """The CRC is right and the record is not: as a broken producer would write it."""
    (batch,) = twenty(0)[:1]
    batch[61] ^= 0x40
    write_crc(batch, 0, len(batch))
    with pytest.raises(KafkaError, match="record"):
        list(scan_range(folder_with(tmp_path_factory, [batch]), FetchPlan(topic="t", partition=0, start=0, end=10)))
