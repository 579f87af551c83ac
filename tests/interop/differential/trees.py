"""An answer as a tree of plain values in which everything that may differ between two servers has a symbolic name.

Ids, ports, folders and the present time differ by nature. They are not dropped but named, in the order in which each
server first said them: two servers agree when the same name stands in the same place. Values that only time decides
(within an hour of now, in a field that holds a time) become "<now>"; scenarios use timestamps from 2023.
"""

from __future__ import annotations

import re
import time
from typing import Any

from ottla.model.ids import Uuid, uuid_to_str
from ottla.protocol.primitives import Struct
from ottla.protocol.records import iterate_batches, iterate_records
from tests.interop.differential import allowed

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MILLIS = re.compile(r"(?<!\d)(?:\d{13}|-\d{19})(?!\d)")
_TIMES = ("timestamp", "_time_ms", "_time")
_NAMES = ("name", "topic_name", "topic")
_SETS = {rule.path for rule in allowed.SETS}
_MASKED = {rule.path for rule in allowed.MASKED}
HOUR_MS = 3_600_000


class Symbols:
    """What one server's own values are called. Lives as long as the server: an id keeps its name."""

    def __init__(self, *, texts: dict[str, str], ports: set[int], reference: bool = False) -> None:
        self._reference = reference
        self._texts = texts  # folders, cluster id: replaced inside strings, longest first
        self._ports = ports
        self._known: dict[tuple[str, object], str] = {}
        self._counts: dict[str, int] = {}
        self.length_varies = False
        self.before: dict[str, list[Any]] = {}
        """What the rules of `allowed` changed in the last tree, as it was, by the rule's path."""

    def tree(self, message: Struct) -> Any:
        self.length_varies = False
        self.before = {}
        return self._value(message, type(message).__name__, "")

    def symbol(self, kind: str, value: object) -> str:
        key = (kind, value)
        if key not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[key] = f"<{kind} {self._counts[kind]}>"
            if isinstance(value, bytes) and len(value) == 16:
                self._texts[uuid_to_str(Uuid(value))] = self._known[key]
        return self._known[key]

    def _value(self, value: Any, path: str, field: str) -> Any:
        if path in _MASKED:
            self.before.setdefault(path, []).append(value)
            self.length_varies = True
            return "<masked>" if value not in (-1, 0, None, "") else value
        if isinstance(value, Struct):
            return self._struct(value, path)
        if isinstance(value, list):
            if path == "ApiVersionsResponse.api_keys":
                value = self._advertised(value)
            found = [self._value(item, f"{path}[]", field) for item in value]
            if path in _SETS and len(found) > 1:
                self.before.setdefault(path, []).append(list(found))
                found.sort(key=repr)
            return found
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value), field)
        return self._number(value, field) if isinstance(value, int) and not isinstance(value, bool) else value

    def _advertised(self, keys: list[Any]) -> list[Any]:
        """Apache Kafka's list without what Ottla does not claim to answer."""
        if not self._reference:
            return keys
        self.length_varies = True
        return [each for each in keys if each.api_key not in allowed.LATER_APIS]

    def _struct(self, value: Struct, path: str) -> dict[str, Any]:
        topic_id = getattr(value, "topic_id", None)
        name = next((text for each in _NAMES if (text := getattr(value, each, None))), None)
        if isinstance(topic_id, bytes) and any(topic_id) and isinstance(name, str):
            self.symbol(f"id of {name}", topic_id)
            self._known.setdefault(("id", topic_id), self._known[f"id of {name}", topic_id])
        return {each: self._value(getattr(value, each), f"{path}.{each}", each) for each in value.__slots__}

    def _number(self, value: int, field: str) -> Any:
        if field == "session_id" and value > 0:
            return self.symbol("session", value)
        if field == "producer_id" and value >= 0:
            return self.symbol("producer", value)
        if field in {"port", "controller_port"} and value in self._ports:
            return "<port>"
        if any(part in field for part in _TIMES) and abs(value - time.time() * 1000) < HOUR_MS:
            return "<now>"
        return value

    def _text(self, value: str) -> str:
        found = value
        for text in sorted(self._texts, key=len, reverse=True):
            found = found.replace(text, self._texts[text])
        for port in self._ports:
            found = found.replace(f":{port}", ":<port>")
        found = _UUID4.sub(lambda match: self.symbol("uuid", match.group()), found)
        found = _MILLIS.sub(_now, found)
        self.length_varies = self.length_varies or found != value
        return found

    def _bytes(self, value: bytes, field: str) -> Any:
        if field == "records":
            return self._batches(value)
        if len(value) == 16 and field.endswith("_id"):
            return self._known.get(("id", value)) or (self.symbol("id", value) if any(value) else "<zero id>")
        return value

    def _batches(self, records: bytes) -> list[Any]:
        """Headers and records. The CRC says no more than they do, and compressors differ in their output."""
        found: list[Any] = []
        end = 0
        for position, header in iterate_batches(records):
            end = position + header.size
            self.length_varies = self.length_varies or bool(header.compression)
            fields = header._asdict()
            del fields["crc"], fields["batch_length"]
            tree: dict[str, Any] = {name: self._number(each, name) for name, each in fields.items()}
            tree["records"] = [
                {
                    name: self._number(each, name) if isinstance(each, int) else each
                    for name, each in r._asdict().items()
                }
                for r in iterate_records(records, position)
            ]
            found.append(tree)
        self.length_varies = self.length_varies or end < len(records)  # see allowed.CUT_BATCHES
        return found


def _now(match: re.Match[str]) -> str:
    """A time near the present, or that minus "no limit" (the largest int64)."""
    value = int(match.group())
    value += 0 if value > 0 else 2**63 - 1
    return "<now>" if abs(value - time.time() * 1000) < 3 * HOUR_MS else match.group()


def differences(left: Any, right: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Paths at which two trees differ, with both values."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return [found for name in left for found in differences(left[name], right[name], f"{path}.{name}")]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            found
            for i, pair in enumerate(zip(left, right, strict=True))
            for found in differences(*pair, f"{path}[{i}]")
        ]
    return [] if left == right else [(path.lstrip("."), left, right)]
