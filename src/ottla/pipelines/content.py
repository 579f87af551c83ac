"""What a task writes, in three numbers: a repeated task must have the same rows, in any order.

A row is identified by its key. The value of a repeated row may differ: a sum of doubles after a shuffle depends on the order
of the additions. `uuid()` gives a new value at each run. A row without a key is identified by the column
`_identity` if the writer has that column, else by its value.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.connect.markers import Marker
from ottla.protocol.crc32c import crc32c

IDENTITY = "_identity"
"""Text or bytes for each row, which is not written. A pipeline gives the column where values may differ."""
_MODULUS = 1 << 63


class Content:
    def __init__(self) -> None:
        self._rows = self._size = self._sum = 0

    def add(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        identities: Sequence[bytes | None] | None = None,
    ) -> None:
        """The sum of the rows' checksums does not depend on their order: a shuffle gives rows in any order."""
        if identities is None:
            identities = [value if key is None else key for key, value in zip(keys, values, strict=True)]
        self._rows += len(values)
        self._size += sum(len(key or b"") for key in keys) + sum(len(value or b"") for value in values)
        self._sum += sum(crc32c(identity or b"") for identity in identities)

    def identities(self) -> int:
        return self._sum % _MODULUS

    def differs_from(self, marker: Marker) -> bool:
        """Markers of earlier versions count the rows only: their checksum is over values."""
        return self._rows != marker.rows or (marker.identities is not None and marker.identities != self.identities())

    def __str__(self) -> str:
        return f"{self._rows} rows of {self._size} bytes"
