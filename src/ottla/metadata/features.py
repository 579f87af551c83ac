"""Feature levels: the metadata.versions, the levels that this release supports, and the versions of records.

The tables are those of Kafka 4.3. A cluster finalizes a level for each feature. Records are written in the version that
the finalized metadata.version allows, so that an older node can still read the log.
"""

from __future__ import annotations

from typing import NamedTuple

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
ELR_VERSION = "eligible.leader.replicas.version"

METADATA_VERSIONS: dict[int, str] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
MINIMUM_METADATA_VERSION = 7
LATEST_METADATA_VERSION = 30

TRANSACTIONS_SINCE = 13
DIRECTORY_ASSIGNMENT_SINCE = 17
ELR_SINCE = 23
CORDONED_DIRECTORIES_SINCE = 30


class Range(NamedTuple):
    low: int
    high: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.low <= level <= self.high

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


SUPPORTED_FEATURES: dict[str, Range] = {
    METADATA_VERSION: Range(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    KRAFT_VERSION: Range(0, 1),
    TRANSACTION_VERSION: Range(0, 2),
    GROUP_VERSION: Range(0, 1),
    ELR_VERSION: Range(0, 1),
    SHARE_VERSION: Range(0, 1),
    STREAMS_VERSION: Range(0, 1),
}

_DEFAULTS: tuple[tuple[str, int, int], ...] = (
    # feature, level, the metadata.version from which it is the default
    (ELR_VERSION, 1, 26),
    (GROUP_VERSION, 1, 22),
    (SHARE_VERSION, 1, 28),
    (STREAMS_VERSION, 1, 29),
    (TRANSACTION_VERSION, 2, 24),
)

DEPENDENCIES: dict[tuple[str, int], tuple[str, int]] = {(ELR_VERSION, 1): (METADATA_VERSION, ELR_SINCE)}


def default_levels(metadata_version: int) -> dict[str, int]:
    """The levels (0 included) that a new cluster of this metadata.version starts with, without kraft.version."""
    return {name: level if metadata_version >= since else 0 for name, level, since in _DEFAULTS}


def metadata_version_from_str(text: str) -> int | None:
    """The level of "4.3-IV0", or the last level of "4.3"; None for an unknown version."""
    levels = [level for level, name in METADATA_VERSIONS.items() if name == text or name.startswith(f"{text}-")]
    return max(levels, default=None)


def register_broker_version(metadata_version: int) -> int:
    for since, version in ((CORDONED_DIRECTORIES_SINCE, 4), (DIRECTORY_ASSIGNMENT_SINCE, 3), (8, 2)):
        if metadata_version >= since:
            return version
    return 1


def partition_version(metadata_version: int) -> int:
    """Of PartitionRecord and PartitionChangeRecord alike."""
    if metadata_version >= ELR_SINCE:
        return 2
    return 1 if metadata_version >= DIRECTORY_ASSIGNMENT_SINCE else 0
