"""Keys of encryption at rest: a key for each topic, wrapped by a master key that is never on the same disk.

Every log directory has its own `encryption-keys` file, so that it can be read wherever it is taken together with the
master key. The master keys are `ID:BASE64` lines; the first line is in use, and a new first line is a rotation. A
rotation wraps the topic keys again: at start, before the next new file, or at the node's next check. No data is
rewritten.

The file (version 2) also holds the "encrypted since" mark of the directory (`ottla.security.encrypted_since`) and a MAC
of its contents under the master key. Topic keys are wrapped together with the version: a file that is changed back to
version 1 opens nothing.

A file's key comes from its topic's key and the file's salt. When a topic's key is destroyed to erase records
(`ottla.log.erasure`), files without these records keep their own keys here, one entry each, until the files are gone.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import re
from collections.abc import Iterable
from threading import Lock
from typing import Any, NamedTuple

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.logging import get_logger
from ottla.env.seams import KeyDestroyedError, Storage
from ottla.security.encrypted_since import PLAIN, Before, move_entry, still_there, survey
from ottla.security.key_renewal import KeyRenewal
from ottla.security.key_sources import KeyFileSource, KeyStoreError, open_source

__all__ = [
    "FILE_NAME",
    "KeyStoreError",
    "MasterKey",
    "MasterKeys",
    "TopicKey",
    "TopicKeyStore",
    "derived_key",
    "parse_master_keys",
]

log = get_logger(__name__)

FILE_NAME = "encryption-keys"
KEY_BYTES = 32
_NONCE_BYTES = 12
_VERSION = 2
_LINE = re.compile(r"([A-Za-z0-9._-]{1,64}):([A-Za-z0-9+/=]+)")


class MasterKey(NamedTuple):
    id: str
    key: bytes

    def __repr__(self) -> str:
        return f"MasterKey({self.id}, [hidden])"


class MasterKeys:
    """The keys of one source. A file is read again when it changes; a command and a key server are asked again by
    `renewal`. If a source cannot be used, the keys stay as they are.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._source = open_source(config)
        self.keys = parse_master_keys(self._source.fetch())
        self.refuses_plain = config.ottla_encryption_refuse_plain
        self._bad_file = False
        self._changed_ids: list[str] = []
        self.renewal: KeyRenewal | None = None
        if self._source.renewed:
            self.renewal = KeyRenewal(self._source, config.ottla_encryption_master_key_refresh_ms / 1000)

    def refresh(self) -> None:
        """Take over the source's current keys; never blocks on a command or the network."""
        if self.renewal is not None:
            self._adopt(self.renewal.take())
        elif isinstance(self._source, KeyFileSource) and self._source.changed():
            try:
                self._adopt(parse_master_keys(self._source.fetch()))
                self._bad_file = False
            except KeyStoreError as error:
                if not self._bad_file:
                    log.warning("master_keys.not_loaded", error=str(error), note="the keys in memory stay in use")
                self._bad_file = True

    def _adopt(self, keys: list[MasterKey] | None) -> None:
        """Earlier keys stay in memory: the topic keys that they wrapped may not have been written again yet.

        A known ID with other bytes is refused: the next start could not open what the first bytes wrapped.
        """
        if keys is None:
            return
        keys_by_id = {key.id: key for key in self.keys}
        changed = [key.id for key in keys if keys_by_id.get(key.id, key) != key]
        if changed and changed != self._changed_ids:
            log.error(
                "master_keys.refused", keys=changed, note="an existing ID has a different key: give a new key a new ID"
            )
        self._changed_ids = changed
        if changed:
            return
        if keys[0].id != self.current.id:
            log.info("master_keys.rotated", key=keys[0].id, before=self.current.id)
        names = {key.id for key in keys}
        self.keys = [*keys, *(key for key in self.keys if key.id not in names)]

    @property
    def current(self) -> MasterKey:
        return self.keys[0]

    def find(self, key_id: str) -> MasterKey:
        master_key = next((key for key in self.keys if key.id == key_id), None)
        if master_key is None:
            raise KeyStoreError(f"the master key {key_id} is missing; keep old keys below the new key")
        return master_key


def parse_master_keys(text: str) -> list[MasterKey]:
    keys: list[MasterKey] = []
    for number, line in enumerate(filter(None, (part.strip() for part in text.splitlines())), 1):
        match = _LINE.fullmatch(line)
        try:
            key = base64.b64decode(match[2], validate=True) if match is not None else b""
        except binascii.Error:
            key = b""
        if match is None or len(key) != KEY_BYTES:
            raise KeyStoreError(
                f"master key {number} is not ID:BASE64 of 32 bytes (`head -c 32 /dev/urandom | base64` prints a "
                "new key)"
            )
        if any(master_key.id == match[1] and master_key.key != key for master_key in keys):
            raise KeyStoreError(f"master key {number}: the ID {match[1]} has two keys; give each key its own ID")
        keys.append(MasterKey(match[1], key))
    if not keys:
        raise KeyStoreError("there is no master key: write ID:BASE64 of 32 bytes")
    return keys


class TopicKey(NamedTuple):
    id: bytes
    topic: str
    key: bytes

    def __repr__(self) -> str:
        return f"TopicKey({self.topic}, [hidden])"


def derived_key(topic_key: TopicKey, salt: bytes) -> bytes:
    """The key of one file."""
    return hmac.digest(topic_key.key, b"ottla file key" + salt, "sha256")


class TopicKeyStore:
    """The topic keys of one log directory."""

    def __init__(self, storage: Storage, directory: str, masters: MasterKeys) -> None:
        self._storage = storage
        self.directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._before: Before | None = None
        """Files that may be older than the mark; None until the directory is looked at."""
        self._masters = masters
        self._by_id: dict[bytes, TopicKey] = {}
        self._by_topic: dict[str, TopicKey] = {}
        self._files: dict[bytes, TopicKey] = {}
        """By salt: the keys of files whose topic key was destroyed."""
        self._loaded = False
        self._saving = Lock()
        """Snapshots of the metadata are written in a thread, and may need a key."""
        self._written_with: str | None = None
        """The master key that the file was last written or read with."""

    def for_topic(self, topic: str) -> TopicKey:
        """The key for a new file; created if the topic has none."""
        self.load()
        self.follow_master_keys()
        if topic not in self._by_topic:
            self.load(again=True)  # `storage format` may have written the file since: its keys must not be lost
        topic_key = self._by_topic.get(topic)
        if topic_key is None:
            topic_key = TopicKey(os.urandom(16), topic, os.urandom(KEY_BYTES))
            self._add(topic_key)
            self._save()
        return topic_key

    def follow_master_keys(self) -> None:
        """Wrap the topic keys again when there is a new master key."""
        self._masters.refresh()
        if self._written_with not in (None, self._masters.current.id):
            self._save()

    def file_key(self, key_id: bytes, salt: bytes) -> bytes:
        """The key of a file with this header. Raises KeyDestroyedError if the key does not exist any more."""
        self.load(again=key_id not in self._by_id and salt not in self._files)
        topic_key = self._by_id.get(key_id)
        if topic_key is not None:
            return derived_key(topic_key, salt)
        kept = self._files.get(salt)
        if kept is None:
            reason = f"{self._path} has no key {key_id.hex()}: the data that it encrypts cannot be read"
            raise KeyDestroyedError(reason)
        return kept.key

    def topic_of(self, key_id: bytes, salt: bytes) -> str:
        """The topic that the key belongs to; call `file_key` first."""
        key_entry = self._by_id.get(key_id) or self._files.get(salt)
        return "" if key_entry is None else key_entry.topic

    def renew(self, topic: str) -> None:
        """Create a new key for the topic's next files; earlier keys stay until `destroy`."""
        self.load(again=True)
        self._add(TopicKey(os.urandom(16), topic, os.urandom(KEY_BYTES)))
        self._save()

    def destroy(self, topic: str, headers: Iterable[tuple[bytes, bytes]], *, newest: bool) -> None:
        """Destroy the keys of the topic, with the newest key or without. The files with these headers (key id, salt)
        stay readable. Every other file and copy that the keys encrypt is lost for ever.
        """
        self.load(again=True)
        left = None if newest else self._by_topic.get(topic)
        kept = {
            salt: TopicKey(salt, topic, self.file_key(key_id, salt))
            for key_id, salt in headers
            if left is None or key_id != left.id
        }
        self._files = {salt: key for salt, key in self._files.items() if key.topic != topic} | kept
        self._by_id = {id_: key for id_, key in self._by_id.items() if key.topic != topic or key is left}
        if left is None:
            self._by_topic.pop(topic, None)
        self._save()

    def topics(self) -> set[str]:
        """The topics that have a key, or a file with its own key."""
        self.load()
        return {*self._by_topic, *(key.topic for key in self._files.values())}

    def _add(self, key: TopicKey) -> None:
        self._by_id[key.id] = key
        self._by_topic[key.topic] = key

    # The mark

    def before_note(self, path: str) -> str | None:
        """The list's entry for a file that may be older than the mark; None if the list has no entry for the file."""
        self.load()
        folder, name = os.path.split(os.path.relpath(path, self.directory))
        note = (self._before or {}).get(folder, {}).get(name)
        return None if note == PLAIN and self._masters.refuses_plain else note

    def now_encrypted(self, path: str) -> None:
        """A file of the list was emptied and is encrypted from now on: remove it from the list."""
        self.renamed(f"{path}.tmp", path)

    def renamed(self, source: str, target: str) -> None:
        """Follow a rename in the list. The list is saved at once, because a new file may take the place of an older
        one.
        """
        if not self._before:
            return
        inside = [os.path.relpath(path, self.directory) for path in (source, target)]
        if move_entry(self._before, inside[0], inside[1]):
            self._save()

    def shorten_before(self) -> None:
        """Remove files from the list that do not exist any more."""
        if self._before:
            left = still_there(self._storage, self.directory, self._before)
            if left != self._before:
                self._before = left
                self._save()

    # The file

    def load(self, *, again: bool = False) -> None:
        if self._loaded and not again:
            return
        if self._storage.exists(self._path):
            stale = self._read()
            if stale:
                self._save()
        elif self._before is None:
            self._before = survey(self._storage, self.directory, keys_lost=self._path)
            if self._before:
                self._save()
        self._loaded = True

    def _read(self) -> bool:
        """Whether the file has to be written again: a new master key, or a version without the mark."""
        try:
            document = json.loads(self._storage.read_bytes(self._path))
            version = document["version"]
            if version not in (1, _VERSION):
                raise KeyStoreError(f"{self._path} has version {version}: a newer version of Ottla wrote it")
            before = self._checked_before(document) if version == _VERSION else None
            masters = [self._unwrap(entry, version) for entry in document["keys"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, KeyStoreError):
                raise
            raise KeyStoreError(f"{self._path} cannot be read") from None
        if before is None:
            self._before = survey(self._storage, self.directory)
            return True
        self._before = before
        self._written_with = document["master"]
        return any(master != self._masters.current.id for master in (*masters, document["master"]))

    def _checked_before(self, document: dict[str, Any]) -> Before:
        master = self._masters.find(document["master"])
        if not hmac.compare_digest(_mac(master, document), base64.b64decode(document["mac"])):
            raise KeyStoreError(f"{self._path} was changed, or master key {master.id} did not write this file")
        before: Before = document["before"]
        return before

    def _unwrap(self, entry: dict[str, Any], version: int) -> str:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, topic, wrapped = bytes.fromhex(entry["id"]), entry["topic"], base64.b64decode(entry["wrapped"])
        master = self._masters.find(entry["master"])
        bound = _bound(key_id, topic, version)
        try:
            key = AESGCM(master.key).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], bound)
        except InvalidTag:
            raise KeyStoreError(f"{self._path}: master key {master.id} did not wrap {topic}'s key") from None
        if entry.get("file", False):
            self._files[key_id] = TopicKey(key_id, topic, key)
        else:
            self._add(TopicKey(key_id, topic, key))
        return master.id

    def _save(self) -> None:
        with self._saving:
            self._write()

    def _write(self) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        master = self._masters.current
        entries = []
        for key in (*self._by_id.values(), *self._files.values()):
            nonce = os.urandom(_NONCE_BYTES)
            bound = _bound(key.id, key.topic, _VERSION)
            wrapped = nonce + AESGCM(master.key).encrypt(nonce, key.key, bound)
            entries.append(
                {
                    "id": key.id.hex(),
                    "topic": key.topic,
                    "master": master.id,
                    "wrapped": base64.b64encode(wrapped).decode(),
                    **({"file": True} if key.id in self._files else {}),
                }
            )
        document = {"version": _VERSION, "master": master.id, "before": self._before or {}, "keys": entries}
        document["mac"] = base64.b64encode(_mac(master, document)).decode()
        self._storage.write_atomic(self._path, json.dumps(document, indent=1).encode())
        self._written_with = master.id


def _bound(key_id: bytes, topic: str, version: int) -> bytes:
    """The data that authenticates a wrapped key."""
    return (b"" if version == 1 else bytes([version])) + key_id + topic.encode()


def _mac(master: MasterKey, document: dict[str, Any]) -> bytes:
    signed = {name: value for name, value in document.items() if name != "mac"}
    key = hmac.digest(master.key, b"ottla key store", "sha256")
    return hmac.digest(key, json.dumps(signed, sort_keys=True).encode(), "sha256")
