"""Headers of encrypted files: which key opens the file, and which file of which log it is.

    version 2 (128 bytes) = "OTTLAENC", 2, kind (1), zeros (2), partition (4); key id (16); salt (32);
                            topic id (16); offset (8); epoch (4); zeros (20); tag (16)

    version 1 (64 bytes)  = "OTTLAENC", 1, zeros (7); key id (16); salt (32)

The tag is an HMAC of everything before the tag, under the file's own key. Every frame is authenticated with the tag.
So a file opens only as the kind, partition and base offset of the topic for which it was written. The path of the log
directory is not part of the header, because replicas and backups move. A header of version 1 does not name the place
of its file; the list of older files has the salts of such files (`ottla.security.encrypted_since`).
"""

from __future__ import annotations

import hmac
import os
import re
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla.model.ids import METADATA_DIR, METADATA_TOPIC_ID, uuid_from_str

MAGIC = b"OTTLAENC"
VERSION = 2
KEY_BYTES = 64
"""Magic, version, key id and salt: the same in both versions."""
HEADER_BYTES = {1: KEY_BYTES, 2: 128}
MAX_HEADER_BYTES = 128
PARTITION_METADATA = "partition.metadata"
NO_TOPIC_ID = bytes(16)
_TAG_BYTES = 16
_MAX_FOLDER_NAME = 255
"""The name of a folder that is set aside holds only the beginning of a very long topic name."""
_LAYOUT = Struct(">8sBB2xi16s32s16sqi20x")
_SEGMENT = re.compile(r"(\d{20})\.log(\.(?:cleaned|swap|deleted))?")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint(\.part)?(\.deleted)?")
_CHECKPOINT = re.compile(r".*\.checkpoint(\.part)?(\.deleted)?")
_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,10})(?:\.[0-9a-f]+-(?:delete|future|stray))?")


class UnauthenticFileError(OSError):
    """A file of the log is not the file that was written there."""


class FileKind(IntEnum):
    SEGMENT = 1
    SNAPSHOT = 2
    BOOTSTRAP = 3


class FilePlace(NamedTuple):
    """The place of a file, from its name and its folder's name."""

    kind: FileKind
    topic: str
    partition: int
    offset: int
    epoch: int


class FileHeader(NamedTuple):
    version: int
    kind: int
    partition: int
    key_id: bytes
    salt: bytes
    topic_id: bytes
    offset: int
    epoch: int

    def described(self) -> str:
        kind = FileKind(self.kind).name.lower() if self.kind in {*FileKind} else f"file of kind {self.kind}"
        return f"the {kind} at {self.offset} of partition {self.partition} of the topic with id {self.topic_id.hex()}"


def place_of(path: str) -> FilePlace | None:
    """None for a file that holds no records."""
    name = os.path.basename(path)
    folder = _FOLDER.fullmatch(os.path.basename(os.path.dirname(path)))
    topic, partition = (folder["topic"], int(folder["partition"])) if folder is not None else ("", -1)
    if (match := _SEGMENT.fullmatch(name)) is not None:
        return FilePlace(FileKind.SEGMENT, topic, partition, int(match[1]), 0)
    if (match := _SNAPSHOT.fullmatch(name)) is not None:
        return FilePlace(FileKind.SNAPSHOT, topic, partition, int(match[1]), int(match[2]))
    if _CHECKPOINT.fullmatch(name) is not None:
        return FilePlace(FileKind.BOOTSTRAP, topic, partition, 0, 0)
    return None


def topic_of(path: str) -> str:
    """The topic whose records a file holds; "" for files of no topic (bootstrap.checkpoint), which share the node's
    key.
    """
    match = _FOLDER.fullmatch(os.path.basename(os.path.dirname(path)))
    return match["topic"] if match is not None else ""


def fixed_topic_id(folder: str) -> bytes | None:
    """The id of the metadata log, or of files that belong to no topic; None where `partition.metadata` has the id."""
    name = os.path.basename(folder)
    if name == METADATA_DIR:
        return METADATA_TOPIC_ID
    return None if _FOLDER.fullmatch(name) is not None else NO_TOPIC_ID


def topic_id_in(partition_metadata: bytes) -> bytes | None:
    """None if the file has no topic id: a crash before its first sync leaves it empty."""
    for line in partition_metadata.decode(errors="replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return uuid_from_str(value.strip())
            except ValueError:
                return None
    return None


def new_header(place: FilePlace, topic_id: bytes, key_id: bytes, salt: bytes, file_key: bytes) -> bytes:
    plain = _LAYOUT.pack(MAGIC, VERSION, place.kind, place.partition, key_id, salt, topic_id, place.offset, place.epoch)
    return plain + _tag(file_key, plain)


def parse_header(start: bytes) -> FileHeader | None:
    """None when there is no whole header. The tag is not checked here."""
    if len(start) < KEY_BYTES or not start.startswith(MAGIC):
        return None
    version = start[8]
    if version == VERSION:
        if len(start) < MAX_HEADER_BYTES:
            return None
        _, _, kind, partition, key_id, salt, topic_id, offset, epoch = _LAYOUT.unpack_from(start)
        return FileHeader(version, kind, partition, key_id, salt, topic_id, offset, epoch)
    return FileHeader(version, 0, -1, start[16:32], start[32:64], NO_TOPIC_ID, 0, 0)


def checked_tag(path: str, start: bytes, place: FilePlace, topic_id: bytes | None, file_key: bytes) -> bytes:
    """The tag of a header of version 2, which authenticates its frames. Raises UnauthenticFileError for a different
    file.

    Without a topic id (`partition.metadata` is lost) all other fields are compared. The id is compared when the folder
    gets an id again.
    """
    end = MAX_HEADER_BYTES - _TAG_BYTES
    tag = start[end:MAX_HEADER_BYTES]
    header = parse_header(start)
    if header is None or not hmac.compare_digest(tag, _tag(file_key, start[:end])):
        raise UnauthenticFileError(f"{path}: the header of this encrypted file was changed. {ADVICE}")
    same_topic = topic_id in (None, NO_TOPIC_ID, header.topic_id) or header.topic_id == NO_TOPIC_ID
    header_place = (header.kind, header.partition, header.offset, header.epoch)
    if not same_topic or header_place != (place.kind, place.partition, place.offset, place.epoch):
        raise UnauthenticFileError(f"{path} is {header.described()}: it was moved here from elsewhere. {ADVICE}")
    return tag


ADVICE = "Nothing was changed. Put the right file back, or remove the partition's folder: the replica is then copied from its leader"


def check_owner(path: str, place: FilePlace, owner: str) -> None:
    """Raises UnauthenticFileError if the file's key belongs to a topic with a different name; also for version 1."""
    folder = os.path.basename(os.path.dirname(path))
    shortened = len(folder) >= _MAX_FOLDER_NAME and owner.startswith(place.topic)
    if owner != place.topic and not shortened:
        raise UnauthenticFileError(
            f"{path} is encrypted with a key of {owner or 'the node'}: it was moved here. {ADVICE}"
        )


def _tag(file_key: bytes, plain: bytes) -> bytes:
    return hmac.digest(file_key, b"ottla file header" + plain, "sha256")[:_TAG_BYTES]
