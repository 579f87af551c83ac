"""The state of joins in pages: values of many keys in one entry, so that a key costs no call to the JVM of its own.

Spark groups rows by bucket, a hash of the key. The map of a bucket holds pages: a page is one JSON text, from key to value.
A bucket grows by one page at a time (linear hashing, Litwin 1980), so a page stays near PAGE_BYTES. A change reads and writes
one page, however many keys there are. BUCKETS, the hashes and the form of an entry are part of every checkpoint: a change of
one of them needs a new LAYOUT.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from ottla.model.user_error import UserError

LAYOUT = 1
BUCKETS = 512
"""Many for an even spread over state partitions, few for the calls of a small batch. A worker holds the rows that one batch
has for one bucket."""
PAGE_BYTES = 4096
PAGE, ENTRY = "page int", "rows string"
_COUNTS = -1
"""The page that holds no rows, but the counts of the bucket."""


class Pages:
    """The values of one bucket during one batch. No key is null: a null key has no value and gets none."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._loaded: dict[int, dict[str, list[Any]]] = {}
        self._changed: set[int] = set()
        self._stored: dict[str, int] | None = None
        self._count = 0  # nothing was read

    def get(self, key: str | None) -> tuple[Any, ...] | None:
        value = None if key is None else self._page_of(key)[1].get(key)
        return None if value is None else tuple(value)

    def put(self, key: str | None, value: tuple[Any, ...] | None) -> None:
        if key is None:
            return
        number, page = self._page_of(key)
        before = page.pop(key, None)
        if before is not None:
            self._bytes -= _size(key, before)
        if value is not None:
            page[key] = list(value)
            self._bytes += _size(key, page[key])
        if value is not None or before is not None:
            self._changed.add(number)

    def store(self) -> None:
        """Writes the pages that changed."""
        if not self._changed:
            return
        count = max(self._count, -(-self._bytes // PAGE_BYTES))
        if count > self._count:
            self._grow(count)
        for number in sorted(self._changed):
            page = self._loaded[number]
            if page:
                self._state.updateValue((number,), (json.dumps(page, ensure_ascii=False, separators=(",", ":")),))
            else:
                self._state.removeKey((number,))
        counts = {"layout": LAYOUT, "pages": self._count, "bytes": self._bytes}
        if counts != self._stored:
            self._state.updateValue((_COUNTS,), (json.dumps(counts),))
        self._changed.clear()
        self._stored = counts

    def _grow(self, count: int) -> None:
        """Only the pages that the new pages take rows from are read."""
        split = {page_number(number, self._count) for number in range(self._count, count)}
        rows = [row for number in split for row in self._page(number).items()]
        self._loaded.update({number: {} for number in [*split, *range(self._count, count)]})
        self._changed |= split
        self._count = count
        for key, value in rows:
            number = page_number(_hash(key), count)
            self._loaded[number][key] = value
            self._changed.add(number)

    def _page_of(self, key: str) -> tuple[int, dict[str, list[Any]]]:
        if not self._count:
            self._read_counts()
        number = page_number(_hash(key), self._count)
        page = self._loaded.get(number)
        return number, self._page(number) if page is None else page

    def _page(self, number: int) -> dict[str, list[Any]]:
        if number not in self._loaded:
            stored = self._state.getValue((number,)) if self._stored else None
            self._loaded[number] = json.loads(stored[0]) if stored else {}
        return self._loaded[number]

    def _read_counts(self) -> None:
        stored = self._state.getValue((_COUNTS,))
        self._stored = json.loads(stored[0]) if stored else None
        counts = self._stored or {"layout": LAYOUT, "pages": 1, "bytes": 0}
        if counts["layout"] != LAYOUT:
            raise UserError(
                f"the state of this join has layout {counts['layout']}, this Ottla reads layout {LAYOUT}: run the Ottla that "
                "wrote the checkpoint, or create new outputs with `ottla pipeline backfill`"
            )
        self._count, self._bytes = counts["pages"], counts["bytes"]


def page_number(number: int, count: int) -> int:
    """The page of a hash where there are `count` pages. Of `count` + 1 pages, one has rows of the page before it."""
    bits = (count - 1).bit_length()
    page = number & ((1 << bits) - 1)
    return page if page < count else page & ((1 << bits - 1) - 1)


def _hash(key: str) -> int:
    return zlib.crc32(key.encode())


def _size(key: str, value: list[Any]) -> int:
    return len(key) + sum(len(part) if isinstance(part, str) else 8 for part in value)
