"""Messages with their masked fields covered, before anything else looks at them: pages, filters, exports, SQL.

A key or value with a masked field becomes JSON, whatever its format was. One that cannot be decoded is hidden
whole: it may hold the field. Null stays null. Search text and paths meet the masked bytes, so that no filter finds out
what a field holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.console.messages.decode import Decoder, json_text
from ottla.security.masking import HIDDEN, TopicMask

Headers = list[tuple[str, bytes | None]]


class Masker:
    def __init__(self, mask: TopicMask, decoder: Decoder) -> None:
        self._mask = mask
        self._decoder = decoder

    def part(self, part: str, data: bytes | None) -> bytes | None:
        """A key or value as it may be shown."""
        rules = self._mask.of(part)
        if data is None or not rules:
            return data
        if all(not rule.path for rule in rules):
            return self._whole(part, data)
        tree = self._decoder.decode(data).tree
        if tree is None:
            return HIDDEN.encode()
        try:
            return json_text(self._mask.tree(part, tree)).encode()
        except (RecursionError, ValueError):  # deeper than can be walked, or a number that has no text
            return HIDDEN.encode()

    def _whole(self, part: str, data: bytes) -> bytes:
        """Masks the whole key or value: a decoded structure keeps its shape, other data is masked as text."""
        decoded = self._decoder.decode(data)
        try:
            covered = self._mask.tree(part, decoded.tree if decoded.tree is not None else _text(data))
            return covered.encode() if isinstance(covered, str) else json_text(covered).encode()
        except (RecursionError, ValueError):
            return HIDDEN.encode()

    def headers(self, headers: Iterable[tuple[str, bytes | None]] | None) -> Headers:
        return [(name, self._mask.header(name, data)) for name, data in headers or ()]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


class MaskedMessage:
    """A message of a reader, with what `record.from_message` and the filters call."""

    __slots__ = ("_headers", "_key", "_message", "_value")

    def __init__(self, message: Any, masker: Masker) -> None:
        self._message = message
        self._key = masker.part("key", message.key())
        self._value = masker.part("value", message.value())
        self._headers = masker.headers(message.headers())

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        return self._headers

    def error(self) -> Any:
        return None

    def topic(self) -> str:
        return str(self._message.topic())

    def partition(self) -> int:
        return int(self._message.partition())

    def offset(self) -> int:
        return int(self._message.offset())

    def timestamp(self) -> tuple[int, int]:
        kind, at = self._message.timestamp()
        return int(kind), int(at)


class MaskedReader:
    """A reader whose messages are masked by their topic; everything else is the reader's."""

    def __init__(self, reader: Any, mask_of: Callable[[str], TopicMask | None], decoder: Decoder) -> None:
        self._reader = reader
        self._mask_of = mask_of
        self._decoder = decoder
        self._maskers: dict[str, Masker | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        return [self._masked(message) for message in self._reader.consume(count, timeout_s)]

    def _masked(self, message: Any) -> Any:
        if message.error() is not None:
            return message
        masker = self._masker(str(message.topic()))
        return message if masker is None else MaskedMessage(message, masker)

    def _masker(self, topic: str) -> Masker | None:
        if topic not in self._maskers:
            mask = self._mask_of(topic)
            self._maskers[topic] = None if mask is None else Masker(mask, self._decoder)
        return self._maskers[topic]


def masked_table(rows: Any, masker: Masker) -> Any:
    """An Arrow table of records (`ottla.tables`) with keys, values and headers as they may be shown."""
    import pyarrow as pa

    for name in ("key", "value"):
        index = rows.schema.get_field_index(name)
        shown = [masker.part(name, data) for data in rows.column(index).to_pylist()]
        rows = rows.set_column(index, rows.schema.field(index), pa.array(shown, rows.schema.field(index).type))
    index = rows.schema.get_field_index("headers")
    if index >= 0:
        kind = rows.schema.field(index).type
        covered = [
            None if headers is None else [
                {"key": name, "value": data}
                for name, data in masker.headers([(h["key"], h["value"]) for h in headers])
            ]
            for headers in rows.column(index).to_pylist()
        ]  # fmt: skip
        rows = rows.set_column(index, rows.schema.field(index), pa.array(covered, kind))
    return rows
