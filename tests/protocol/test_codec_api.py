"""API keys, header versions and the two headers that are read and written by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.protocol.schema import snake

import ottla
from ottla.protocol.api import (
    ApiKey,
    api,
    decode_request_header,
    encode_request,
    encode_response,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from ottla.protocol.generated.api_versions_response import ApiVersionsResponse
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.heartbeat_response import HeartbeatResponse
from ottla.protocol.generated.index import APIS
from ottla.protocol.generated.request_header import RequestHeader
from ottla.protocol.generated.response_header import ResponseHeader
from ottla.protocol.primitives import DecodeError

ALL_VERSIONS = [(key, version) for key, a in APIS.items() for version in range(a.min_version, a.max_version + 1)]


def test_the_enum_is_the_generated_index():
    assert {member.name: int(member) for member in ApiKey} == {snake(a.name).upper(): key for key, a in APIS.items()}


def test_every_api_has_its_two_classes():
    for key, entry in APIS.items():
        request, response = request_class(key), response_class(key)
        assert (request.__name__, response.__name__) == (f"{entry.name}Request", f"{entry.name}Response")
        assert request.API_KEY == response.API_KEY == key
        assert (entry.min_version, entry.max_version) == (request.MIN_VERSION, request.MAX_VERSION)
        assert (entry.min_version, entry.max_version) == (response.MIN_VERSION, response.MAX_VERSION)
        assert request.FLEXIBLE_FROM == response.FLEXIBLE_FROM == entry.flexible_from
        assert request_class(key) is request


@pytest.mark.parametrize("key", [-1, 4, 7, 93, 32767])
def test_an_unknown_key_is_a_decode_error(key):
    for call in (api, request_class, response_class, lambda k: request_header_version(k, 0)):
        with pytest.raises(DecodeError, match=str(key)):
            call(key)
    with pytest.raises(DecodeError, match=f"unknown API key {key}"):
        decode_request_header(key.to_bytes(2, "big", signed=True) + bytes(20))


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.FETCH, 11, 1, 0),
        (ApiKey.FETCH, 12, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 4, 2, 0),
        (ApiKey.API_VERSIONS, 99, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.VOTE, 0, 2, 1),
    ],
)
def test_header_versions(key, version, request_header, response_header):
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


@given(
    at=st.sampled_from(ALL_VERSIONS),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=30),
    body=st.binary(max_size=9),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_the_request_header_agrees_with_the_generated_one(at, correlation_id, client_id, body, kind):
    key, version = at
    header_version = request_header_version(key, version)
    raw = RequestHeader(key, version, correlation_id, client_id).to_bytes(header_version)
    assert decode_request_header(kind(raw + body)) == (key, version, correlation_id, client_id, len(raw))
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            decode_request_header(kind(raw[:cut]))


def test_tagged_fields_of_the_header_are_skipped():
    header = RequestHeader(0, 9, 7, "me").to_bytes(2)[:-1] + b"\x02\x00\x03abc\x81\x01\x00"
    assert decode_request_header(header + b"body") == (0, 9, 7, "me", len(header))
    with pytest.raises(DecodeError):
        decode_request_header(header[:-1])


def test_any_negative_client_id_length_is_null():
    assert decode_request_header(b"\0\x11\0\1\0\0\0\5\x80\x00") == (17, 1, 5, None, 10)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("client_id", [None, "", "c"])
def test_a_request_frame(version, client_id):
    request = HeartbeatRequest("group", 3, "member", None)
    frame = b"".join(encode_request(request, version, 77, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_request_header(frame[4:])[:4] == (12, version, 77, client_id)
    pos = decode_request_header(frame[4:])[4]
    assert HeartbeatRequest.decode(frame, pos + 4, version) == (request, len(frame))


@pytest.mark.parametrize("response", [HeartbeatResponse(5, 27), ApiVersionsResponse(35)])
def test_a_response_frame(response):
    for version in range(response.MIN_VERSION, response.MAX_VERSION + 1):
        frame = b"".join(encode_response(response, version, -8))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header_version = response_header_version(response.API_KEY, version)
        header, pos = ResponseHeader.decode(frame, 4, header_version)
        assert header.correlation_id == -8
        assert frame[pos:] == response.to_bytes(version)


def test_a_response_counts_a_piece_that_is_no_bytes():
    from ottla.protocol.generated.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData

    class Region:
        def __len__(self):
            return 1000

    region = Region()
    topic = FetchableTopicResponse(partitions=[PartitionData(records=region)])
    pieces = encode_response(FetchResponse(responses=[topic]), 17, 1)
    assert any(piece is region for piece in pieces)
    assert int.from_bytes(pieces[0][:4], "big") == sum(map(len, pieces)) - 4


def test_importing_the_api_loads_no_message():
    code = "import sys, ottla.protocol.api; print(*sorted(m for m in sys.modules if 'generated' in m))"
    source = str(Path(ottla.__file__).parents[1])
    said = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True, timeout=30, check=True
    )
    assert said.stdout.split() == ["ottla.protocol.generated", "ottla.protocol.generated.index"]
