"""What a task writes, in three numbers: a repeated task must have the same rows, in any order."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.connect.markers import Marker
from ottla.protocol.crc32c import crc32c

_MODULUS = 1 << 63


class Content:
    def __init__(self) -> None:
        self._rows = self._size = self._sum = 0

    def add(self, keys: Sequence[bytes | str | None], values: Sequence[bytes | None]) -> None:
        """The sum of the rows' checksums does not depend on their order: a shuffle gives rows in any order."""
        key_bytes = [b"" if key is None else key if isinstance(key, bytes) else key.encode() for key in keys]
        value_bytes = [value or b"" for value in values]
        self._rows += len(value_bytes)
        self._size += sum(map(len, key_bytes)) + sum(map(len, value_bytes))
        self._sum += sum(map(crc32c, value_bytes, map(crc32c, key_bytes)))  # type: ignore[arg-type]

    def checksum(self) -> int:
        return self._sum % _MODULUS

    def differs_from(self, marker: Marker) -> bool:
        """Markers of format 1 have no checksum."""
        return (self._rows, self._size) != (marker.rows, marker.size) or (
            marker.checksum is not None and marker.checksum != self.checksum()
        )

    def __str__(self) -> str:
        return f"{self._rows} rows of {self._size} bytes"
