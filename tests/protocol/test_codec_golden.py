"""Bytes that real clients, brokers and logs of Apache Kafka 4.3.1 made: read, and written again as the same bytes.

record_golden.py makes the files. quorum-state is JSON, so its fields are compared instead of its bytes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.protocol.java_oracle import digest, dump
from tests.protocol.message_values import NAMES, kinds, message_class, presence, versions

from ottla.protocol.api import (
    ApiKey,
    decode_request_header,
    encode_request,
    encode_response,
    request_class,
    response_class,
    response_header_version,
)
from ottla.protocol.generated.index import APIS, METADATA_RECORDS
from ottla.protocol.generated.response_header import ResponseHeader

GOLDEN = Path(__file__).with_name("golden")


def lines(name):
    rows = [line.split() for line in (GOLDEN / name).read_text().splitlines()]
    return [(*row[:-1], b"" if row[-1] == "-" else bytes.fromhex(row[-1])) for row in rows]


FRAMES = [(what, int(key), int(version), raw) for what, key, version, raw in lines("frames.txt")]
RECORDS = [(name, int(version), raw) for name, version, raw in lines("records.txt")]
MESSAGES = [(name, int(version), reading, raw) for name, version, reading, raw in lines("messages.txt")]
TRAILING = {("request", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "rdkafka"): 1}
"""librdkafka (seen in 2.16) writes one tag byte too many. Kafka does not mind bytes after a request, nor may we."""
IDS = [f"{what}-{ApiKey(key).name}-v{version}-{n}" for n, (what, key, version, _) in enumerate(FRAMES)]


@pytest.mark.parametrize(("what", "key", "version", "frame"), FRAMES, ids=IDS)
def test_frame(what, key, version, frame):
    if what == "request":
        got_key, got_version, correlation_id, client_id, pos = decode_request_header(frame)
        assert (got_key, got_version) == (key, version)
        message, end = request_class(key).decode(frame, pos, version)
        again = encode_request(message, version, correlation_id, client_id)
    else:
        client_id = None
        header, pos = ResponseHeader.decode(frame, 0, response_header_version(key, version))
        message, end = response_class(key).decode(frame, pos, version)
        again = encode_response(message, version, header.correlation_id)
    assert len(frame) - end == TRAILING.get((what, key, client_id), 0)
    assert b"".join(again)[4:] == frame[:end]


@pytest.mark.parametrize(("name", "version", "raw"), RECORDS, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(RECORDS)])
def test_record(name, version, raw):
    cls = message_class(name)
    if name == "QuorumStateData":
        fields = {key.lower() for key in json.loads(raw) if key != "data_version"}
        assert fields == {field.replace("_", "") for field in kinds(cls) if field in presence(cls, version)}
        return
    message, end = cls.decode(raw, 0, version)
    assert end == len(raw)
    assert message.to_bytes(version) == raw


@pytest.mark.parametrize("name", NAMES)
def test_message_of_kafkas_own_class(name):
    """Where there is no Java: what test_codec_java asks, with one value that was kept for each version."""
    cls = message_class(name)
    kept = [row for row in MESSAGES if row[0] == name]
    assert [version for _, version, _, _ in kept] == list(versions(cls))
    for _, version, reading, raw in kept:
        message, end = cls.decode(raw, 0, version)
        assert (end, message.to_bytes(version)) == (len(raw), raw)
        assert digest(dump(message)) == reading


def test_the_recording_is_wide():
    """A new recording that lost most of its traffic must not pass for a good one."""
    versions = {(key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)}
    answered = {(key, version) for what, key, version, _ in FRAMES if what == "response"}
    asked = {(key, version) for what, key, version, _ in FRAMES if what == "request"}
    assert len(answered) > 0.85 * len(versions)
    assert len({key for key, _ in asked}) > 0.7 * len(APIS)
    assert len({name for name, _, _ in RECORDS} & set(METADATA_RECORDS.values())) >= 15
    assert {"GroupMetadataValue", "ConsumerGroupMemberMetadataValue", "OffsetCommitValue"} <= {n for n, _, _ in RECORDS}
    assert {"TransactionLogKey", "TransactionLogValue", "SnapshotHeaderRecord"} <= {n for n, _, _ in RECORDS}
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < 1_000_000
