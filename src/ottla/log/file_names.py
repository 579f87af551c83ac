"""How files and folders of a log directory are named: everything that builds or reads such a name is here.

A partition's folder is `topic-partition`; files in it carry their segment's base offset in 20 digits. Suffixes mark
files that a crash may leave behind. `.deleted` files wait for the end of the delay before their removal. `.cleaned`
files belong to an unfinished compaction. `.swap` files belong to a finished compaction whose segments do not have their
final names yet.
"""

from __future__ import annotations

import re

from ottla.model.ids import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
ERASURE_CHECKPOINT = "erasure-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"

MAX_DIR_NAME = 255
_UNIQUE_DIR = re.compile(r"^(\S+)-(\d+)\.(\S+)(-delete|-future|-stray)$")
_PARTITION_DIR = re.compile(r"^(\S+)-(\d+)$")


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def base_offset_of(name: str) -> int | None:
    """The base offset that a file's name begins with; None for a file of another kind."""
    digits = name[:20]
    if len(digits) == 20 and digits.isascii() and digits.isdigit() and name[20:21] == ".":
        return int(digits)
    return None


def parse_partition_dir(name: str) -> tuple[TopicPartition, str] | None:
    """`(topic_partition, suffix)` of a partition's folder, suffix `-delete`, `-future`, `-stray` or empty.

    None when the name is not a partition's.
    """
    match = _UNIQUE_DIR.match(name)
    if match is not None:
        return TopicPartition(match[1], int(match[2])), match[4]
    if name.endswith((DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)):
        return None
    match = _PARTITION_DIR.match(name)
    return (TopicPartition(match[1], int(match[2])), "") if match is not None else None


def unique_dir(topic_partition: TopicPartition, unique: bytes, suffix: str) -> str:
    """A folder name that no other use of the partition takes: `topic-partition.<32 hex digits>-delete`.

    The future folder keeps the whole topic name; the others shorten it so that the name fits the file system.
    """
    tail = f"-{topic_partition.partition}.{unique.hex()}{suffix}"
    topic = topic_partition.topic if suffix == FUTURE_DIR_SUFFIX else topic_partition.topic[: MAX_DIR_NAME - len(tail)]
    return topic + tail
