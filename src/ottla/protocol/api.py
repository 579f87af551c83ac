"""From an API key to its message classes and header versions, and the two headers on the hot path.

Message modules are imported at their first use: a node answers its first request long before all of them are loaded.
The headers are read and written here by hand, without the generated RequestHeader, because every request pays for them.
"""

from __future__ import annotations

from importlib import import_module
from struct import Struct, error, pack

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated.index import APIS, MODULES, Api
from ottla.protocol.primitives import DecodeError, Message, Pieces, Source, skip_tags, truncated, uvarint

__all__ = [
    "Api", "ApiKey", "api", "decode_request_header", "encode_request", "encode_response", "request_class",
    "request_header_version", "response_class", "response_header_version",
]  # fmt: skip

_FLEXIBLE_FROM = {key: entry.flexible_from for key, entry in APIS.items()}
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_request_head = Struct(">hhih").unpack_from
_response_head = Struct(">ii").pack
_response_head_flexible = Struct(">iix").pack  # the pad byte is "no tagged fields"

_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def api(key: int) -> Api:
    """Its name, versions and listeners; DecodeError when Kafka 4.3 has no such key."""
    entry = APIS.get(key)
    if entry is None:
        raise DecodeError(f"unknown API key {key}")
    return entry


def request_class(key: int) -> type[Message]:
    return _requests.get(key) or _load(_requests, key, "Request")


def response_class(key: int) -> type[Message]:
    return _responses.get(key) or _load(_responses, key, "Response")


def _load(message_types: dict[int, type[Message]], key: int, suffix: str) -> type[Message]:
    name = api(key).name + suffix
    module = import_module(f"ottla.protocol.generated.{MODULES[name]}")
    message_type: type[Message] = getattr(module, name)
    message_types[key] = message_type
    return message_type


def request_header_version(key: int, version: int) -> int:
    """2 from the API's first flexible version on, else 1."""
    return 2 if version >= api(key).flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """The header version: 1 from the API's first flexible version on, 0 before. ApiVersions stays at 0: a client that
    asked for an unsupported version must still find the error code (KIP-511).
    """
    return 1 if version >= api(key).flexible_from and key != _API_VERSIONS else 0


def decode_request_header(buf: Source) -> tuple[int, int, int, str | None, int]:
    """(api_key, version, correlation_id, client_id, position of the body). The version may be one we do not have:
    the caller answers that. DecodeError for an unknown key, as Kafka then closes the connection.
    """
    try:
        key, version, correlation_id, n = _request_head(buf, 0)
        flexible_from = _FLEXIBLE_FROM.get(key)
        if flexible_from is None:
            raise DecodeError(f"unknown API key {key}")
        if n < 0:
            client_id, pos = None, 10
        else:
            pos = 10 + n
            raw = buf[10:pos]
            if len(raw) != n:
                truncated()
            client_id = str(raw, "utf-8", "replace")
        if version >= flexible_from:
            pos = skip_tags(buf, pos) if buf[pos] else pos + 1
    except (IndexError, error) as reason:
        raise DecodeError(f"request header: {reason}") from reason
    return key, version, correlation_id, client_id, pos


def encode_response(response: Message, version: int, correlation_id: int) -> Pieces:
    """A whole response frame as pieces: length and header first, then the body's own pieces, none of them copied."""
    out: Pieces = [b""]
    response.WRITERS[version](response, out)
    size = sum(map(len, out))
    if version >= response.FLEXIBLE_FROM and response.API_KEY != _API_VERSIONS:
        out[0] = _response_head_flexible(size + 5, correlation_id)
    else:
        out[0] = _response_head(size + 4, correlation_id)
    return out


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> Pieces:
    """A whole request frame as pieces, for clients: the node itself when it talks to other nodes, and tests."""
    out: Pieces = [b""]
    request.encode(out, version)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = uvarint(0) if version >= request.FLEXIBLE_FROM else b""
    size = sum(map(len, out)) + 10 + len(name) + len(tags)
    out[0] = pack(">ihhih", size, request.API_KEY, version, correlation_id, length) + name + tags
    return out
