"""Lines as records: the console producer's reader, with keys, headers and a marker for null."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class ReaderError(Exception):
    """A line that does not have what was promised, or properties that contradict each other."""


class LineRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class LineReader:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parse_key = _true(properties, "parse.key")
        self._parse_headers = _true(properties, "parse.headers")
        self._ignore_error = _true(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t")
        self._headers_delimiter = properties.get("headers.delimiter", "\t")
        self._headers_separator = properties.get("headers.separator", ",")
        self._headers_key_separator = properties.get("headers.key.separator", ":")
        self._null_marker = properties.get("null.marker")
        self._line_number = 0
        self._check()

    def _check(self) -> None:
        named = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._headers_key_separator,
            "key.separator": self._key_separator,
        }
        pairs = [
            ("headers.delimiter", "headers.separator"),
            ("headers.delimiter", "headers.key.separator"),
            ("headers.separator", "headers.key.separator"),
        ]
        for first, second in pairs:
            if named[first] == named[second]:
                raise ReaderError(f"{first} and {second} may not be equal")
        for name in ("key.separator", "headers.separator", "headers.delimiter", "headers.key.separator"):
            if named[name] == self._null_marker:
                raise ReaderError(f"null.marker and {name} may not be equal")

    def read(self, line: str) -> LineRecord:
        self._line_number += 1
        headers = self._until(line, 0, self._headers_delimiter, "headers delimiter", enabled=self._parse_headers)
        start = 0 if headers is None else len(headers) + len(self._headers_delimiter)
        key = self._until(line, start, self._key_separator, "key separator", enabled=self._parse_key)
        start += 0 if key is None else len(key) + len(self._key_separator)
        return LineRecord(
            None if key is None else self._bytes(key),
            self._bytes(line[start:]),
            [] if headers is None or headers == self._null_marker else self._split(headers),
        )

    def _bytes(self, text: str) -> bytes | None:
        return None if text == self._null_marker else text.encode("utf-8", "surrogateescape")

    def _until(self, line: str, start: int, mark: str, name: str, *, enabled: bool) -> str | None:
        if not enabled:
            return None
        index = line.find(mark, start)
        if index < 0:
            if self._ignore_error:
                return None
            raise ReaderError(f"No {name} found on line number {self._line_number}: '{line}'")
        return line[start:index]

    def _split(self, text: str) -> list[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = []
        for pair in re.split(self._headers_separator, text):
            key, mark, value = pair.partition(self._headers_key_separator)
            if not mark:
                if not self._ignore_error:
                    where = f"in pair '{pair}' on line number {self._line_number}"
                    raise ReaderError(f"No header key separator found {where}")
                headers.append((pair, None))
                continue
            if key == self._null_marker:
                raise ReaderError(
                    f"Header keys should not be equal to the null marker '{self._null_marker}' as they can't be null"
                )
            headers.append((key, self._bytes(value)))
        return headers


def _true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"
