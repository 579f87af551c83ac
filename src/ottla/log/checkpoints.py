"""The small text files of a log directory and of a partition folder, in Kafka's own form.

Checkpoint files have a version line, a count line and one line per entry; every line ends with a newline, so that the
last number is known to be whole. A file that cannot be read raises `CorruptCheckpointError`; its reader decides what is
safe to assume then. Everything here is written whole and put in place by a rename. A file that was not synced before
the rename may still be empty or torn after a power cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ottla.env.seams import Storage
from ottla.log.file_names import CLEAN_SHUTDOWN, PARTITION_METADATA
from ottla.model.ids import Offset, TopicPartition, Uuid, uuid_from_str, uuid_to_str

CHECKPOINT_VERSION = "0"
UNKNOWN_BROKER_EPOCH = -1


class CorruptCheckpointError(ValueError):
    """A checkpoint file does not follow its format."""


def write_unsynced(storage: Storage, path: str, data: bytes) -> None:
    """Put a file in place by rename but leave the sync to a later flush.

    For files that recovery rebuilds from the log: an fsync per partition would make creating and loading thousands of
    partitions a matter of minutes.
    """
    temporary = path + ".tmp"
    file = storage.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
    finally:
        file.close()
    storage.rename(temporary, path)


def encode_lines(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([CHECKPOINT_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_lines(path: str, data: bytes, fields: int) -> list[list[str]]:
    """The entries, each split into `fields` words.

    An empty file has none, because Kafka creates its checkpoints empty. A power cut may leave an empty file as well: where
    that matters, the reader looks at the size.
    """
    if not data:
        return []
    if not data.endswith(b"\n"):
        raise CorruptCheckpointError(f"{path} does not end with a newline: its last line is torn")
    lines = data.decode("utf-8", errors="replace").splitlines()
    if lines[0].strip() != CHECKPOINT_VERSION:
        raise CorruptCheckpointError(f"{path} has version {lines[0]!r}, expected {CHECKPOINT_VERSION}")
    if len(lines) < 2 or not lines[1].strip().isdigit():
        raise CorruptCheckpointError(f"{path} does not say how many entries it has")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != int(lines[1]) or any(len(words) != fields for words in entries):
        raise CorruptCheckpointError(f"{path} announces {lines[1].strip()} entries of {fields} words and differs")
    return entries


def write_offsets(storage: Storage, path: str, offsets: Mapping[TopicPartition, Offset], *, sync: bool = True) -> None:
    """`recovery-point-`, `replication-`, `log-start-` and `cleaner-offset-checkpoint`."""
    data = encode_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    if sync:
        storage.write_atomic(path, data)
    else:
        write_unsynced(storage, path, data)


def read_offsets(storage: Storage, path: str) -> dict[TopicPartition, Offset]:
    if not storage.exists(path):
        return {}
    entries = decode_lines(path, storage.read_bytes(path), 3)
    try:
        return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}
    except ValueError as error:
        raise CorruptCheckpointError(f"{path} holds an entry that is not a number: {error}") from error


def was_written_empty(storage: Storage, path: str) -> bool:
    """Whether the checkpoint was written without entries; False when the file is missing or damaged."""
    return storage.exists(path) and storage.read_bytes(path).split() == [b"0", b"0"]


def write_partition_metadata(storage: Storage, directory: str, topic_id: Uuid) -> None:
    data = f"version: 0\ntopic_id: {uuid_to_str(topic_id)}"
    write_unsynced(storage, f"{directory}/{PARTITION_METADATA}", data.encode())


def read_partition_metadata(storage: Storage, directory: str) -> Uuid:
    path = f"{directory}/{PARTITION_METADATA}"
    pairs = dict(
        line.split(": ", 1) for line in storage.read_bytes(path).decode(errors="replace").splitlines() if ": " in line
    )
    if pairs.get("version") != "0" or "topic_id" not in pairs:
        raise CorruptCheckpointError(f"{path} is not partition metadata of version 0")
    try:
        return uuid_from_str(pairs["topic_id"].strip())
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {error}") from error


def write_clean_shutdown(storage: Storage, log_dir: str, broker_epoch: int) -> None:
    data = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    storage.write_atomic(f"{log_dir}/{CLEAN_SHUTDOWN}", data.encode())


def read_clean_shutdown(storage: Storage, log_dir: str) -> int | None:
    """The broker epoch of a clean shutdown; -1 when the marker holds no epoch, None without a marker."""
    path = f"{log_dir}/{CLEAN_SHUTDOWN}"
    if not storage.exists(path):
        return None
    try:
        content = json.loads(storage.read_bytes(path))
        return int(content["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN_BROKER_EPOCH
