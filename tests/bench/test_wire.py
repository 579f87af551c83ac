"""The hand-made frames, checked by kio, which others wrote: a wrong frame would measure an error path."""

import datetime as dt
import io
import socket
import struct
import threading

import pytest
from google_crc32c import value as crc32c
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request as fetch_request
from kio.schema.fetch.v12 import response as fetch_response
from kio.schema.produce.v12 import request as produce_request
from kio.schema.produce.v12 import response as produce_response
from kio.serial import entity_reader, entity_writer

from bench import wire


def decode(frame: bytes, header: type, body: type) -> tuple:
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    view, at = memoryview(frame), 4
    head, used = entity_reader(header)(view, at)
    message, more = entity_reader(body)(view, at + used)
    assert at + used + more == len(frame)
    return head, message


def encode(message: object) -> memoryview:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return memoryview(struct.pack(">i", 7) + b"\x00" + out.getvalue())


def test_produce_frame() -> None:
    records = wire.batch(b"v" * 200, 3)
    frame = wire.produce(42, "topic", 5, records, acks=-1)
    head, message = decode(frame, produce_request.RequestHeader, produce_request.ProduceRequest)
    assert (head.request_api_key, head.request_api_version, head.correlation_id) == (0, 12, 42)
    assert (message.acks, message.transactional_id) == (-1, None)
    (topic,) = message.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index) == ("topic", 5)


def test_batch_is_one_that_a_client_reads() -> None:
    from aiokafka.record.memory_records import MemoryRecords

    raw = wire.batch(b"value", 300)
    (stored,) = struct.unpack_from(">I", raw, 17)
    assert stored == crc32c(raw[21:])
    batch = MemoryRecords(raw).next_batch()
    assert batch is not None
    assert batch.validate_crc()
    read = [(record.offset, record.key, record.value) for record in batch]
    assert read == [(offset, None, b"value") for offset in range(300)]
    assert wire.walk(memoryview(raw)) == (300, 300)
    assert wire.walk(memoryview(raw + raw[:-1])) == (300, 300), "a cut batch does not count"


@pytest.mark.parametrize("error", [ErrorCode.none, ErrorCode.not_leader_or_follower])
def test_produce_answer(error: ErrorCode) -> None:
    partition = produce_response.PartitionProduceResponse(
        index=5, error_code=error, base_offset=77, record_errors=(), log_append_time=None
    )
    topic = produce_response.TopicProduceResponse(name="t" * 130, partition_responses=(partition,))
    answer = encode(produce_response.ProduceResponse(responses=(topic,)))
    assert wire.produced(answer) == (error.value, 77)


def test_fetch_frame() -> None:
    frame = wire.fetch(9, "topic", 3, 1234, 1 << 20)
    head, message = decode(frame, fetch_request.RequestHeader, fetch_request.FetchRequest)
    assert (head.request_api_key, head.request_api_version, head.correlation_id) == (1, 12, 9)
    assert (message.max_bytes, message.min_bytes, message.session_id, message.session_epoch) == (1 << 20, 1, 0, -1)
    (partition,) = message.topics[0].partitions
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (3, 1234, 1 << 20)


def fetch_answer(error: ErrorCode) -> memoryview:
    partition = fetch_response.PartitionData(
        partition_index=3,
        error_code=error,
        high_watermark=10,
        aborted_transactions=None,
        records=wire.batch(b"value", 10),
    )
    topic = fetch_response.FetchableTopicResponse(topic="topic", partitions=(partition,))
    return encode(
        fetch_response.FetchResponse(throttle_time=dt.timedelta(0), error_code=ErrorCode.none, responses=(topic,))
    )


def test_fetch_answer() -> None:
    assert wire.walk(wire.fetched(fetch_answer(ErrorCode.none))) == (10, 10)
    with pytest.raises(wire.AnswerError, match="Fetch answered error 1"):
        wire.fetched(fetch_answer(ErrorCode.offset_out_of_range))


def test_a_closed_connection_is_an_error_not_a_hang() -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.recv(1000)
            accepted.sendall(b"\x00\x00")

    thread = threading.Thread(target=serve)
    thread.start()
    connection = wire.Connection(listening.getsockname()[1], timeout_s=5)
    with listening, connection, pytest.raises(wire.WireError, match="closed"):
        connection.metadata()
    thread.join()
