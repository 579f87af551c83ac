"""Folders that no other user of the machine can write to.

A program or a definition that is read from a folder runs with our rights, so the folder's owner and mode count. Anybody
may create a folder in the directory for temporary files before we do.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from functools import cache

_OTHERS_WRITE = stat.S_IWOTH
_GROUP_OR_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_temporary_folder(name: str) -> str:
    """A folder for scripts in the directory for temporary files, the same for every process of this user.

    A folder of that name may belong to a different user, be a link, or have a mode that allows others to write. Then
    the process gets a new folder of its own, which is removed at exit.
    """
    path = os.path.join(tempfile.gettempdir(), f"{name}-{os.geteuid()}")
    try:
        os.mkdir(path, mode=0o700)
    except FileExistsError:
        if _stranger(path, (os.geteuid(),), _GROUP_OR_OTHERS_WRITE) is not None:
            return _folder_of_this_process(name, os.getpid())
    return path


def stranger_who_writes(folder: str) -> str | None:
    """Who besides this user (and root) can write to the folder, as the reason of an error; None if nobody can.

    Members of the folder's group count as friends: many systems give every user a group of its own.
    """
    return _stranger(os.path.realpath(folder), (os.geteuid(), 0), _OTHERS_WRITE)


def _stranger(path: str, owners: tuple[int, ...], writable: int) -> str | None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        return "the path is not a directory"
    if status.st_uid not in owners:
        return f"the directory belongs to user {status.st_uid}"
    if status.st_mode & writable:
        return f"other users can write to the directory (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


@cache
def _folder_of_this_process(name: str, pid: int) -> str:
    path = tempfile.mkdtemp(prefix=f"{name}-")  # mode 0700, a name that nobody can guess

    def remove() -> None:
        if os.getpid() == pid:  # a forked child leaves the folder to its parent
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path
