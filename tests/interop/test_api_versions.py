"""ApiVersions advertises exactly what is answered: each version of each API, and nothing else, on both listeners."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator

import pytest

from ottla.protocol.generated.describe_acls_request import DescribeAclsRequest
from ottla.protocol.generated.index import APIS, MODULES
from ottla.protocol.primitives import Message
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka
from tests.support.frames import RawConnection, request_header

API_VERSIONS = 18
PRODUCE = 0
PRODUCE_IN_NAME_ONLY = range(3)
"""Kafka advertises Produce v0-2 for clients that infer record formats from it (KAFKA-18659), and closes on them."""
UNSUPPORTED_VERSION = 35
ANY = 1
"""A filter for ACLs that every resource type, operation or permission matches."""
LISTENERS = ("broker", "controller")


@pytest.fixture(params=LISTENERS)
def port(request: pytest.FixtureRequest, ottla_server: OttlaServer) -> int:
    return ottla_server.port if request.param == "broker" else ottla_server.controller_port


def advertised(port: int) -> dict[int, range]:
    """By hand from ApiVersions v0: int16 error, then key, min and max of each API."""
    with RawConnection("127.0.0.1", port) as connection:
        body = connection.request(API_VERSIONS, 0, b"")
    assert body is not None
    error, count = struct.unpack_from(">hi", body)
    assert error == 0
    entries = struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
    return {key: range(low, high + 1) for key, low, high in entries}


def message(name: str) -> type[Message]:
    found: type[Message] = getattr(importlib.import_module(f"ottla.protocol.generated.{MODULES[name]}"), name)
    return found


def answer(port: int, api_key: int, version: int) -> bytes | None:
    """The response body to a request with little but defaults; None when the connection is closed instead."""
    api = APIS[api_key]
    pieces: list[bytes] = []
    request = message(f"{api.name}Request")()
    if api_key == PRODUCE:
        request.acks = 1  # type: ignore[attr-defined]  # acks=0 is never answered
    if isinstance(request, DescribeAclsRequest):  # a filter of type 0 (UNKNOWN) closes the connection, as in Kafka
        request.resource_type_filter = request.operation = request.permission_type = ANY
    request.encode(pieces, version)  # type: ignore[arg-type]
    flexible = version >= api.flexible_from
    with RawConnection("127.0.0.1", port) as connection:
        body = connection.request(api_key, version, b"".join(pieces), flexible=flexible)
    return body[1:] if body is not None and flexible and api_key != API_VERSIONS else body


def versions(port: int) -> Iterator[tuple[int, int]]:
    for api_key, supported in advertised(port).items():
        for version in supported:
            if api_key != PRODUCE or version not in PRODUCE_IN_NAME_ONLY:
                yield api_key, version


def test_every_advertised_version_is_answered(port: int) -> None:
    """With a body that decodes to its last byte."""
    wrong = []
    asked = 0
    for api_key, version in versions(port):
        asked += 1
        body = answer(port, api_key, version)
        if body is None:
            wrong.append(f"{APIS[api_key].name} v{version}: closed")
            continue
        _, end = message(f"{APIS[api_key].name}Response").decode(body, 0, version)
        if end != len(body):
            wrong.append(f"{APIS[api_key].name} v{version}: {len(body) - end} bytes left")
    assert wrong == []
    assert asked > 40


def test_nothing_else_is_answered(port: int) -> None:
    """An API or version that is not advertised closes the connection, except that ApiVersions says what it has."""
    known = advertised(port)
    wrong = []
    for api_key in range(-1, 100):
        supported = known.get(api_key)
        tried = [0, 1, 5] if supported is None else [supported.start - 1, supported.stop, supported.stop + 100]
        tried += PRODUCE_IN_NAME_ONLY if api_key == PRODUCE else ()
        for version in tried:
            if api_key == API_VERSIONS:
                continue
            try:
                with RawConnection("127.0.0.1", port, timeout=5) as connection:
                    connection.send_frame(request_header(api_key, version, 7) + bytes(64))
                    if connection.read_frame() is not None:
                        wrong.append(f"{api_key} v{version}")
            except ConnectionError:
                continue
            except TimeoutError:
                wrong.append(f"{api_key} v{version}: neither answered nor closed")
    assert wrong == []


def test_a_version_of_api_versions_from_the_future(port: int) -> None:
    """KIP-511: answered at v0 with error 35 and the range that is known."""
    with RawConnection("127.0.0.1", port) as connection:
        body = connection.request(API_VERSIONS, 99, bytes(16), flexible=True)
    assert body is not None
    assert struct.unpack_from(">hi", body) == (UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">h", body, 6) == (API_VERSIONS,)


def test_the_versions_are_those_of_apache_kafka(ottla_server: OttlaServer, apache_server: ApacheKafka) -> None:
    theirs, ours = advertised(apache_server.port), advertised(ottla_server.port)
    wanted = [0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 34, 35, 37, 43, 44, 55, 57, 60, 61, 74, 75]
    assert [APIS[key].name for key in wanted if key not in ours] == []
    assert {APIS[key].name: (ours[key], theirs.get(key)) for key in ours if ours[key] != theirs.get(key)} == {}
