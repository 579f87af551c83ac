"""Requests that real clients sent to real Kafka (tests/protocol/golden), said again to both servers.

What belonged to that cluster is replaced: topic ids by those of a topic of today, groups by groups of their own (a
recorded JoinGroup must not wait for another's members), long waits by short ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.protocol.api import decode_request_header, request_class
from ottla.protocol.generated.share_fetch_request import ShareFetchRequest
from ottla.protocol.primitives import Message, Struct
from tests.interop.differential.pair import Pair, Side

FRAMES = Path(__file__).resolve().parents[2] / "protocol/golden/frames.txt"
METADATA = 3
CHANGES = {19, 20, 30, 31, 33, 37, 43, 44, 45, 49, 51, 57}
"""What the controller answers, before the broker has heard of it."""
LEFT_OUT = {
    10,  # FindCoordinator: of transactions, and of groups whose topic is only being made
    64,  # UnregisterBroker
    35,  # DescribeLogDirs of everything: what other scenarios left to be deleted
    16,  # ListGroups: as above
    66,  # ListTransactions: as above
}


class Recorded:
    def __init__(self, line: int, key: int, version: int, body: bytes) -> None:
        self.line, self.key, self.version = line, key, version
        self.message: Any = request_class(key).decode(body, 0, version)[0]


def recorded(served: set[int]) -> Iterator[Recorded]:
    for number, line in enumerate(FRAMES.read_text().splitlines(), 1):
        direction, key, version, data = line.split()
        if direction == "request" and int(key) in served - LEFT_OUT:
            found = _recorded(number, int(key), int(version), bytes.fromhex(data))
            if found is not None and not _for_later(found.message):
                yield found


def _for_later(message: Any) -> bool:
    """Followers come with a later issue."""
    replica = getattr(message, "replica_state", None)
    return replica is not None and replica.replica_id >= 0


def topics_asked_for(requests: list[Recorded]) -> list[str]:
    """Made beforehand: a Metadata request that creates a topic is answered before the topic is there."""
    metadata = (request.message.topics or () for request in requests if request.key == METADATA)
    return sorted({topic.name for topics in metadata for topic in topics if topic.name})


def _recorded(line: int, key: int, version: int, data: bytes) -> Recorded | None:
    api_key, api_version, _, _, position = decode_request_header(data)
    return Recorded(line, key, version, data[position:]) if (api_key, api_version) == (key, version) else None


def replay(pair: Pair, request: Recorded, topic: str) -> None:
    def build(side: Side) -> Message:
        _replace(request.message, side, topic, request.line)
        message: Message = request.message
        return message

    pair.send(build, request.version)
    if request.key in CHANGES:
        pair.settle()


def _replace(value: Any, side: Side, topic: str, line: int) -> None:
    if isinstance(value, list):
        for each in value:
            _replace(each, side, topic, line)
    if not isinstance(value, Struct):
        return
    for name in value.__slots__:
        found = getattr(value, name)
        if name == "topic_id" and any(found):
            value.topic_id = side.topic_id(topic)  # type: ignore[attr-defined]
        elif name in {"group_id", "key"} and found:
            setattr(value, name, f"{str(found).split('@')[0]}@{line}")
        elif name in {"max_wait_ms", "rebalance_timeout_ms", "session_timeout_ms"}:
            # A share fetch answers with the error of its state's coordinator only when that has spoken by then.
            soon = name == "max_wait_ms" and not isinstance(value, ShareFetchRequest)
            setattr(value, name, 10 if soon else 2_000)
        else:
            _replace(found, side, topic, line)
