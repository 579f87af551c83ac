"""How the console consumers print a record: Kafka's DefaultMessageFormatter and its siblings, by class name.

The old package's name (kafka.tools.) still works here; Apache Kafka 4 refuses it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO, NamedTuple

from ottla.cli.kafka.options import OptionError


class PrintedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_type: str
    """CreateTime, LogAppendTime, or empty when the record has none."""
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Iterable[tuple[str, bytes | None]]
    delivery: int | None = None


Write = Callable[[PrintedRecord, BinaryIO], None]
_DESERIALIZERS: dict[str, Callable[[bytes], str]] = {
    "StringDeserializer": lambda data: data.decode("utf-8", "replace"),
    "ByteArrayDeserializer": lambda data: data.decode("utf-8", "replace"),
    "BytesDeserializer": lambda data: data.decode("utf-8", "replace"),
    "ShortDeserializer": lambda data: str(_number(">h", data)),
    "IntegerDeserializer": lambda data: str(_number(">i", data)),
    "LongDeserializer": lambda data: str(_number(">q", data)),
    "FloatDeserializer": lambda data: str(_number(">f", data)),
    "DoubleDeserializer": lambda data: str(_number(">d", data)),
    "BooleanDeserializer": lambda data: str(data != b"\0").lower(),
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())),
    "VoidDeserializer": lambda _: "null",
}
_SIZES = {">h": 2, ">i": 4, ">q": 8, ">f": 4, ">d": 8}


class BadRecord(Exception):
    """Bytes that the chosen deserializer does not take."""


def _number(code: str, data: bytes) -> float:
    if len(data) != _SIZES[code]:
        name = {">h": "Short", ">i": "Integer", ">q": "Long", ">f": "Float", ">d": "Double"}[code]
        raise BadRecord(f"Size of data received by {name}Deserializer is not {_SIZES[code]}")
    number: float = struct.unpack(code, data)[0]
    return number


def formatter_for(name: str, properties: Mapping[str, str]) -> Write:
    """OptionError with the class's name when there is no such formatter."""
    prefix, _, simple = name.rpartition(".")
    if prefix in {"kafka.tools", "org.apache.kafka.tools.consumer", ""}:
        if simple == "DefaultMessageFormatter":
            return DefaultFormatter(properties)
        if simple == "LoggingMessageFormatter":
            return DefaultFormatter(properties)
        if simple == "NoOpMessageFormatter":
            return _nothing
        if simple in {"OffsetsMessageFormatter", "GroupMetadataMessageFormatter", "TransactionLogMessageFormatter"}:
            from ottla.cli.kafka.formatters_internal import internal_formatter

            return internal_formatter(simple)
    raise OptionError(name)


def _nothing(record: PrintedRecord, out: BinaryIO) -> None:
    del record, out


class DefaultFormatter:
    def __init__(self, properties: Mapping[str, str]) -> None:
        def on(name: str, *, default: bool = False) -> bool:
            return properties[name].strip().lower() == "true" if name in properties else default

        self._timestamp, self._partition, self._offset = (
            on("print.timestamp"),
            on("print.partition"),
            on("print.offset"),
        )
        self._delivery, self._epoch, self._headers = on("print.delivery"), on("print.epoch"), on("print.headers")
        self._key, self._value = on("print.key"), on("print.value", default=True)
        self._key_separator = _text(properties, "key.separator", "\t")
        self._line_separator = _text(properties, "line.separator", "\n")
        self._headers_separator = _text(properties, "headers.separator", ",")
        self._null = _text(properties, "null.literal", "null")
        self._deserializers = {
            what: _deserializer(properties.get(f"{what}.deserializer")) for what in ("key", "value", "headers")
        }

    def __call__(self, record: PrintedRecord, out: BinaryIO) -> None:
        cells: list[bytes] = []
        if self._timestamp:
            kind = record.timestamp_type
            cells.append(f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP")
        if self._partition:
            cells.append(f"Partition:{record.partition}".encode())
        if self._offset:
            cells.append(f"Offset:{record.offset}".encode())
        if self._delivery:
            cells.append(f"Delivery:{'NOT_PRESENT' if record.delivery is None else record.delivery}".encode())
        if self._epoch:
            cells.append(b"Epoch:NOT_PRESENT")
        if self._headers:
            shown = [key.encode() + b":" + self._shown("headers", value) for key, value in record.headers]
            cells.append(self._headers_separator.join(shown) if shown else b"NO_HEADERS")
        if self._key:
            cells.append(self._shown("key", record.key))
        if self._value:
            cells.append(self._shown("value", record.value))
        if cells:
            out.write(self._key_separator.join(cells) + self._line_separator)

    def _shown(self, what: str, data: bytes | None) -> bytes:
        if data is None:
            return self._null
        deserializer = self._deserializers[what]
        return data if deserializer is None else deserializer(data).encode()


def _text(properties: Mapping[str, str], name: str, default: str) -> bytes:
    return properties.get(name, default).encode()


def _deserializer(name: str | None) -> Callable[[bytes], str] | None:
    return None if name is None else _DESERIALIZERS.get(name.rpartition(".")[2])
