"""Messages into a topic: one that a person typed, or a stretch of one topic replayed into another, byte for byte."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ottla.client.settings import ClientSettings
from ottla.console.errors import ConsoleError
from ottla.console.messages.reach import Client, reach_of
from ottla.console.messages.record import BrowsedRecord
from ottla.console.messages.wire_writer import WireWriter, write_all
from ottla.protocol.records_build import SimpleRecord

_WAIT_S = 20.0
_MAX_HEADERS = 100


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    topic: str
    partition: int
    offset: int


def produce(
    client: Client,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes]],
) -> WrittenMessage:
    """Write one message and wait until it is there; `partition` -1 lets the key choose."""
    reach = reach_of(client)
    if reach.acting is not None:
        return _produce_as(reach.acting, topic, partition, key, value, headers)
    outcome: list[Any] = []
    producer = _producer(reach.librdkafka)
    producer.produce(
        topic, value=value, key=key, partition=partition, headers=headers or None,
        on_delivery=lambda error, message: outcome.append((error, message)),
    )  # fmt: skip
    producer.flush(_WAIT_S)
    if not outcome:
        raise ConsoleError(f"{topic} did not take the message in {_WAIT_S:.0f} s", status=504)
    error, message = outcome[0]
    if error is not None:
        raise ConsoleError(f"{topic} refused the message: {error.str()}")
    return WrittenMessage(message.topic(), message.partition(), message.offset())


def _produce_as(
    settings: ClientSettings, topic: str, partition: int, key: bytes | None, value: bytes | None,
    headers: list[tuple[str, bytes]],
) -> WrittenMessage:  # fmt: skip
    record = SimpleRecord(int(time.time() * 1000), key, value, tuple(headers))
    with closing(WireWriter(settings, topic)) as writer:
        chosen = writer.partition_for(key) if partition < 0 else partition
        return WrittenMessage(topic, chosen, writer.send(chosen, [record]))


def replay(client: Client, batches: Iterator[list[BrowsedRecord]], target: str, *, keep_time: bool) -> int:
    """Copies records with keys, values and headers into `target`. Returns their number; stops at the first refusal."""
    reach = reach_of(client)
    if reach.acting is not None:
        with closing(WireWriter(reach.acting, target)) as writer:
            return write_all(writer, batches, keep_time=keep_time)
    refused: list[str] = []
    producer = _producer(reach.librdkafka)

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(error.str())

    copied = 0
    for batch in batches:
        for record in batch:
            more = {"timestamp": record.timestamp_ms} if keep_time and record.timestamp_ms >= 0 else {}
            while True:
                try:
                    producer.produce(
                        target, value=record.value, key=record.key, headers=list(record.headers) or None,
                        on_delivery=delivered, **more,
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.5)
            copied += 1
        producer.poll(0)
        if refused:
            break
    left = producer.flush(_WAIT_S)
    if refused or left:
        reason = refused[0] if refused else f"{left} messages were not answered in {_WAIT_S:.0f} s"
        raise ConsoleError(f"the replay into {target} stopped after {copied - left - len(refused)} messages: {reason}")
    return copied


def parse_bytes(text: str, encoding: str, *, null: bool = False) -> bytes | None:
    """What a form field holds: text, hex or base64; or nothing at all."""
    if null:
        return None
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        if encoding == "base64":
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise ConsoleError(f"that is not {encoding}: {error}") from error
    return text.replace("\r\n", "\n").encode()


def parse_headers(text: str) -> list[tuple[str, bytes]]:
    """One `name: value` a line."""
    headers = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConsoleError(f"header {line!r}: write name: value, one a line")
        headers.append((name.strip(), value.strip().encode()))
    if len(headers) > _MAX_HEADERS:
        raise ConsoleError(f"at most {_MAX_HEADERS} headers")
    return headers


def _producer(client: Mapping[str, str]) -> Any:
    from confluent_kafka import Producer

    return Producer({
        "acks": "all", "enable.idempotence": True, "allow.auto.create.topics": False, "linger.ms": 2,
        "message.max.bytes": 100_000_000, "message.timeout.ms": int(_WAIT_S * 1000), "log_level": 0,
        "queue.buffering.max.kbytes": 32_768, **client,
    })  # fmt: skip
