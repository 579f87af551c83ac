"""Encryption at rest behind the Storage seam: files of records are encrypted (`EncryptedFile`), others pass through.

A file of records opens only where it was written. The header of an encrypted file of version 2 names its place. Older
and plain files open only if they were there when the directory was marked (`ottla.security.encrypted_since`). Any other
file is refused with UnauthenticFileError before a byte of it is used.

An attacker with the disk can still remove files, cut frames off the end of a file, or put back an older copy of the
same file. Without `ottla.encryption.refuse.plain` the attacker can also replace an encrypted directory by a plain
directory, because that also replaces the mark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence

from ottla.env.seams import File, Storage
from ottla.security.encrypted_file import FRAME_BYTES, BufferFile, EncryptedFile
from ottla.security.encrypted_since import PLAIN, is_plain_start, note_of
from ottla.security.file_headers import (
    ADVICE,
    MAGIC,
    MAX_HEADER_BYTES,
    NO_TOPIC_ID,
    PARTITION_METADATA,
    UnauthenticFileError,
    fixed_topic_id,
    parse_header,
    place_of,
    topic_id_in,
    topic_of,
)
from ottla.security.keystore import MasterKeys, TopicKeyStore

__all__ = ["FRAME_BYTES", "MAGIC", "EncryptedStorage", "UnauthenticFileError"]

_GONE_SOON = (".deleted", ".cleaned")


class EncryptedStorage:
    """A Storage whose files of records are encrypted; everything else passes through."""

    def __init__(self, inner: Storage, directories: Sequence[str], masters: MasterKeys) -> None:
        self._inner = inner
        self.masters = masters
        self._stores = {directory: TopicKeyStore(inner, directory, masters) for directory in dict.fromkeys(directories)}
        self._topic_ids: dict[str, bytes] = {}
        """By folder: the topic id in `partition.metadata`."""
        for name in ("exists", "is_dir", "modified_ms", "list_dir", "make_dirs", "sync_dir", "disk_space", "lock"):
            setattr(self, name, getattr(inner, name))

    def check(self) -> None:
        """Raises KeyStoreError if these master keys do not open the keys of a directory."""
        for store in self._stores.values():
            store.load()
        for store in self._stores.values():
            store.shorten_before()

    def follow_master_keys(self) -> None:
        """Take over new master keys in every directory. Never waits for a command or the network."""
        for store in self._stores.values():
            store.follow_master_keys()

    # Erasure (`ottla.log.erasure.KeyCustody`)

    def renew_key(self, directory: str, topic: str) -> None:
        self._stores[directory].renew(topic)

    def destroy_old_keys(self, directory: str, topic: str) -> None:
        """Destroy all keys of the topic but the newest. Files that are about to be removed lose their keys too."""
        self._stores[directory].destroy(topic, self._headers(directory, topic, ()), newest=False)

    def destroy_keys(self, directory: str, topic: str, dead: Collection[str] | None) -> None:
        """Destroy the keys of the folders `dead`; with None, the keys of all folders of the topic."""
        store = self._stores[directory]
        if topic in store.topics():
            headers = [] if dead is None else self._headers(directory, topic, dead)
            store.destroy(topic, headers, newest=True)

    def is_plain(self, path: str) -> bool:
        """Whether the file was written before encryption was switched on."""
        file = self._inner.open(path)
        try:
            return is_plain_start(file.pread(MAX_HEADER_BYTES, 0))
        finally:
            file.close()

    def keyed_topics(self, directory: str) -> set[str]:
        return self._stores[directory].topics() - {"", "__cluster_metadata"}

    def _headers(self, directory: str, topic: str, dead: Collection[str]) -> list[tuple[bytes, bytes]]:
        """Key id and salt of each file of the topic that stays."""
        headers = []
        for folder in self._inner.list_dir(directory):
            path = f"{directory}/{folder}"
            if topic_of(f"{path}/") != topic or folder.endswith("-delete") or folder in dead:
                continue
            for name in self._inner.list_dir(path) if self._inner.is_dir(path) else ():
                if place_of(f"{path}/{name}") is not None and not name.endswith(_GONE_SOON):
                    header = parse_header(self._start(f"{path}/{name}"))
                    if header is not None:
                        headers.append((header.key_id, header.salt))
        return headers

    def _start(self, path: str) -> bytes:
        file = self._inner.open(path)
        try:
            return file.pread(MAX_HEADER_BYTES, 0)
        finally:
            file.close()

    exists: Callable[[str], bool]
    is_dir: Callable[[str], bool]
    modified_ms: Callable[[str], int]
    list_dir: Callable[[str], Sequence[str]]
    make_dirs: Callable[[str], None]
    sync_dir: Callable[[str], None]
    disk_space: Callable[[str], tuple[int, int]]
    lock: Callable[[str], Callable[[], None] | None]

    def open(self, path: str, *, create: bool = False) -> File:
        file = self._inner.open(path, create=create)
        store, place = self._store(path), place_of(path)
        if store is None or place is None:
            return file
        try:
            plain = self._is_older(file, store)
            return file if plain else EncryptedFile(file, store, place, lambda: self._topic_id(path))
        except OSError:
            file.close()
            raise

    def _is_older(self, file: File, store: TopicKeyStore) -> bool:
        """Whether the file is plain. Raises UnauthenticFileError if it names no place and is not in the list."""
        note = note_of(file.pread(MAX_HEADER_BYTES, 0))
        if note is not None and store.before_note(file.path) != note:
            kind = "is not encrypted" if note == PLAIN else "is encrypted in the format of older versions"
            text = f"{file.path} {kind} and was not there when {store.directory} was marked as encrypted. {ADVICE}"
            raise UnauthenticFileError(text)
        if note is None and store.before_note(file.path) is not None:
            store.now_encrypted(file.path)
        return note == PLAIN

    def _topic_id(self, path: str) -> bytes | None:
        """The topic id of the folder; None if it has none."""
        folder = os.path.dirname(path)
        topic_id = self._topic_ids.get(folder) or fixed_topic_id(folder)
        if topic_id is None and self._inner.exists(f"{folder}/{PARTITION_METADATA}"):
            topic_id = topic_id_in(self._inner.read_bytes(f"{folder}/{PARTITION_METADATA}"))
            if topic_id is not None:
                self._topic_ids[folder] = topic_id
        return topic_id

    def _assign_topic_id(self, folder: str, partition_metadata: bytes) -> None:
        """Called when a folder gets a topic id. Raises UnauthenticFileError if files in the folder have a different
        id.
        """
        topic_id = topic_id_in(partition_metadata)
        for name in self._inner.list_dir(folder) if topic_id is not None and self._store(folder) else ():
            header = parse_header(self._start(f"{folder}/{name}")) if place_of(f"{folder}/{name}") else None
            if header is not None and header.topic_id not in (NO_TOPIC_ID, topic_id):
                raise UnauthenticFileError(f"{folder}/{name} is {header.described()}: not of this folder. {ADVICE}")
        self._topic_ids.pop(folder, None)

    def rename(self, source: str, target: str) -> None:
        if os.path.basename(target) == PARTITION_METADATA:
            self._assign_topic_id(os.path.dirname(target), self._inner.read_bytes(source))
        self._inner.rename(source, target)
        for path in (source, target):
            self._topic_ids.pop(path, None)
        store = self._store(target)
        if store is not None:
            store.renamed(source, target)

    def remove(self, path: str) -> None:
        self._inner.remove(path)
        if os.path.basename(path) == PARTITION_METADATA:
            self._topic_ids.pop(os.path.dirname(path), None)

    def remove_tree(self, path: str) -> None:
        self._inner.remove_tree(path)
        self._topic_ids.pop(path, None)

    def size(self, path: str) -> int:
        if self._sealed_by(path) is None:
            return self._inner.size(path)
        file = self.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def read_bytes(self, path: str) -> bytes:
        if self._sealed_by(path) is None:
            return self._inner.read_bytes(path)
        file = self.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_atomic(self, path: str, data: bytes) -> None:
        if os.path.basename(path) == PARTITION_METADATA:
            self._assign_topic_id(os.path.dirname(path), data)
        store, place = self._sealed_by(path), place_of(path)
        if store is None or place is None:
            self._inner.write_atomic(path, data)
            return
        buffer = BufferFile(path)
        EncryptedFile(buffer, store, place, lambda: self._topic_id(path)).pwrite(data, 0)
        self._inner.write_atomic(path, bytes(buffer.data))
        store.renamed(f"{path}.tmp", path)

    def _sealed_by(self, path: str) -> TopicKeyStore | None:
        return None if place_of(path) is None else self._store(path)

    def _store(self, path: str) -> TopicKeyStore | None:
        return next((store for directory, store in self._stores.items() if path.startswith(f"{directory}/")), None)
