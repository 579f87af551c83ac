"""The entries of the topic setting `ottla.encryption.forget`: which keys' values are erased, up to which offsets.

An entry is `HASH-PARTITION:OFFSET-...`. The key itself is not in the metadata. Records after the offsets are not
erased. Partitions that were empty are left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.model.ids import Offset

SETTING = "ottla.encryption.forget"
ENTRY = re.compile(r"[0-9a-f]{64}(-\d{1,10}:\d{1,19})+")


def key_hash(topic: str, key: bytes) -> str:
    """Bound to the topic, so that equal keys of two topics do not look alike."""
    return hashlib.sha256(topic.encode() + b"\0" + key).hexdigest()


class Erasure(NamedTuple):
    key_hash: str
    ends: Mapping[int, Offset]

    def __str__(self) -> str:
        return "-".join([self.key_hash, *(f"{number}:{end}" for number, end in sorted(self.ends.items()))])

    @classmethod
    def parse(cls, text: str) -> Erasure:
        """ValueError when it is none."""
        if ENTRY.fullmatch(text) is None:
            raise ValueError("an entry is the key's hash and PARTITION:OFFSET pairs (`ottla topic forget`)")
        first, *places = text.split("-")
        return cls(first, {int(number): int(end) for number, _, end in (place.partition(":") for place in places)})
