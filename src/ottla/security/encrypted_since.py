"""The "encrypted since" mark of a log directory: the list of files that may be older than encrypted files of version 2.

The list is made at the first use of a directory with encryption, or with a version that writes the mark. The list has
every file whose header does not name its place: plain files by name, encrypted files of version 1 by name and salt.
From then on a file of these kinds is accepted only if it is in the list; a file that is put there later is refused.
`encryption-keys` (`ottla.security.keystore`) holds and authenticates the list. The list only gets shorter.
"""

from __future__ import annotations

import os

from ottla.env.seams import Storage
from ottla.security.file_headers import MAGIC, MAX_HEADER_BYTES, parse_header, place_of
from ottla.security.key_sources import KeyStoreError

PLAIN = ""
_SALT_BYTES = 8
_LEFTOVERS = (".deleted", ".cleaned", ".part")
"""Files that a crash leaves behind while files are exchanged; they are never read."""

Before = dict[str, dict[str, str]]
"""Folder in the log directory ("" is the directory itself) -> file name -> PLAIN or the first bytes of its salt."""


def is_plain_start(start: bytes) -> bool:
    """Whether a file with this start is not encrypted. A torn header and the zeros that a power cut leaves do not
    count as plain: bytes that are written there next would be plain too.
    """
    return any(start) and not start.startswith(MAGIC[: len(start)])


def note_of(start: bytes) -> str | None:
    """The entry in the list for a file that begins with `start`; None if the file needs no entry."""
    if is_plain_start(start):
        return PLAIN
    header = parse_header(start)
    return header.salt[:_SALT_BYTES].hex() if header is not None and header.version == 1 else None


def survey(storage: Storage, directory: str, keys_lost: str = "") -> Before:
    """Every file of records below the log directory whose header does not name its place.

    `keys_lost` is the path of a missing `encryption-keys` file. Raises KeyStoreError if a file is encrypted all the
    same. Marking the directory again would accept any plain file that was put there, and give topics new keys.
    """
    before: Before = {}
    if not storage.is_dir(directory):
        return before
    for folder in ("", *storage.list_dir(directory)):
        path = os.path.join(directory, folder) if folder else directory
        if not storage.is_dir(path):
            continue
        for name in storage.list_dir(path):
            if place_of(f"{path}/{name}") is None or name.endswith(_LEFTOVERS):
                continue
            file = storage.open(f"{path}/{name}")
            try:
                start = file.pread(MAX_HEADER_BYTES, 0)
            finally:
                file.close()
            if keys_lost and start.startswith(MAGIC):
                text = f"{keys_lost} is missing, and {path}/{name} is encrypted: put the file of the keys back from a backup"
                raise KeyStoreError(text)
            note = note_of(start)
            if note is not None:
                before.setdefault(folder, {})[name] = note
    return before


def still_there(storage: Storage, directory: str, before: Before) -> Before:
    """The list without files that do not exist any more."""
    kept: Before = {}
    for folder, names in before.items():
        path = f"{directory}/{folder}" if folder else directory
        present = {*storage.list_dir(path)} if storage.is_dir(path) else set()
        left = {name: note for name, note in names.items() if name in present}
        if left:
            kept[folder] = left
    return kept


def move_entry(before: Before, source: str, target: str) -> bool:
    """Follow a rename of a file or folder (paths within the log directory); whether the list changed."""
    if source in before or (target in before and "/" not in target):
        moved = before.pop(source, None)
        before.pop(target, None)
        if moved is not None:
            before[target] = moved
        return True
    from_folder, from_name = os.path.split(source)
    to_folder, to_name = os.path.split(target)
    note = before.get(from_folder, {}).pop(from_name, None)
    replaced = before.get(to_folder, {}).pop(to_name, None)
    if note is not None:
        before.setdefault(to_folder, {})[to_name] = note
    return note is not None or replaced is not None
