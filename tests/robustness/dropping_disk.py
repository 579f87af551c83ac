"""A disk that drops at a power cut what was not synced: `python -m tests.robustness.dropping_disk MOUNTPOINT`.

The process speaks the kernel's FUSE protocol over /dev/fuse and needs no library. Its standard input has commands: `cut
SEED` answers with the lost bytes and the names that were taken back, an end of file ends the process. Nothing is cached
by the kernel, so that each write of a node is here before its call returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.robustness.dropping_tree import ROOT_ID, DroppingTree, Node
from tests.robustness.edge_cluster import NoMounts
from tests.robustness.server_process import ROOT, environment

MAX_WRITE = 1 << 20
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
DIRECT_IO = 1 << 0
SIZE_GIVEN, MODE_GIVEN = 1 << 3, 1 << 0
NO_SUID, NO_DEVICES = 2, 4
PERMISSIONS = 0o7777
REQUEST = struct.Struct("<IIQQIIII")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
ENTRY = struct.Struct("<QQQQII")
DISK_BLOCKS = 1 << 22


class Caller(NamedTuple):
    uid: int
    gid: int


class DroppingDisk:
    def __init__(self, device: int) -> None:
        self._device = device
        self.tree = DroppingTree()
        self._handlers: dict[int, Callable[[Node, bytes, Caller], bytes | None]] = {
            1: self._lookup, 2: self._forget, 3: self._attributes, 4: self._set_attributes, 9: self._make_directory,
            10: self._unlink, 11: self._remove_directory, 12: self._rename, 14: self._open, 15: self._read,
            16: self._write, 17: self._space, 18: _nothing, 20: self._sync, 25: _nothing, 26: _initialise,
            27: self._open, 28: self._list, 29: _nothing, 30: self._sync_directory, 34: _nothing, 35: self._create,
            36: _silence, 42: self._forget_many, 45: self._rename_with_flags,
        }  # fmt: skip

    def serve(self) -> bool:
        """One request of the kernel; False after the unmount."""
        try:
            request = os.read(self._device, MAX_WRITE + 2 * 4096)
        except OSError as error:
            return error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT)
        _, code, unique, node_id, uid, gid, _, _ = REQUEST.unpack_from(request)
        status, payload = 0, None
        try:
            handler = self._handlers.get(code)
            node = self.tree.nodes.get(node_id or ROOT_ID)
            if handler is None or node is None:
                raise OSError(errno.ENOSYS if handler is None else errno.ESTALE, str(node_id))
            payload = handler(node, request[REQUEST.size :], Caller(uid, gid))
            if payload is None:
                return True
        except OSError as error:
            status = error.errno or errno.EIO
        body = payload or b""
        with contextlib.suppress(FileNotFoundError):  # the caller was killed while it waited
            os.write(self._device, ANSWER.pack(ANSWER.size + len(body), -status, unique) + body)
        return True

    # Names

    def _lookup(self, parent: Node, body: bytes, _: Caller) -> bytes:
        return _entry(self.tree.child(parent, _name(body)))

    def _create(self, parent: Node, body: bytes, caller: Caller) -> bytes:
        _, mode, umask, _ = struct.unpack_from("<IIII", body)
        node = self.tree.create(parent, _name(body[16:]), stat.S_IFREG | (mode & PERMISSIONS & ~umask), caller)
        return _entry(node) + _handle(node)

    def _make_directory(self, parent: Node, body: bytes, caller: Caller) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        return _entry(self.tree.create(parent, _name(body[8:]), stat.S_IFDIR | (mode & PERMISSIONS & ~umask), caller))

    def _unlink(self, parent: Node, body: bytes, _: Caller) -> bytes:
        self.tree.remove(parent, _name(body), directory=False)
        return b""

    def _remove_directory(self, parent: Node, body: bytes, _: Caller) -> bytes:
        self.tree.remove(parent, _name(body), directory=True)
        return b""

    def _rename(self, parent: Node, body: bytes, _: Caller) -> bytes:
        return self._move(parent, body, 8)

    def _rename_with_flags(self, parent: Node, body: bytes, _: Caller) -> bytes:
        return self._move(parent, body, 16)

    def _move(self, parent: Node, body: bytes, start: int) -> bytes:
        target = self.tree.nodes[struct.unpack_from("<Q", body)[0]]
        names = body[start:].split(b"\0")
        self.tree.rename(parent, names[0].decode(), target, names[1].decode())
        return b""

    def _list(self, directory: Node, body: bytes, _: Caller) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        rows = [(".", directory), ("..", directory), *sorted(directory.entries.items())]
        listed = b""
        for number, (name, node) in enumerate(rows[offset:], offset + 1):
            encoded = name.encode()
            row = struct.pack("<QQII", node.id, number, len(encoded), node.mode >> 12) + encoded
            row += bytes(-len(row) % 8)
            if len(listed) + len(row) > size:
                break
            listed += row
        return listed

    # Files

    def _attributes(self, node: Node, _: bytes, __: Caller) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + _attributes_of(node)

    def _set_attributes(self, node: Node, body: bytes, caller: Caller) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & SIZE_GIVEN:
            node.truncate(size)
        if valid & MODE_GIVEN:
            mode = struct.unpack_from("<I", body, 68)[0]
            node.mode = stat.S_IFMT(node.mode) | (mode & PERMISSIONS)
        return self._attributes(node, b"", caller)

    def _open(self, node: Node, _: bytes, __: Caller) -> bytes:
        return _handle(node)

    def _read(self, node: Node, body: bytes, _: Caller) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(node.data[offset : offset + size])

    def _write(self, node: Node, body: bytes, _: Caller) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        node.write(offset, body[40 : 40 + size])
        return struct.pack("<II", size, 0)

    def _sync(self, node: Node, _: bytes, __: Caller) -> bytes:
        node.sync()
        return b""

    def _sync_directory(self, node: Node, _: bytes, __: Caller) -> bytes:
        self.tree.sync_directory(node)
        return b""

    def _space(self, _: Node, __: bytes, ___: Caller) -> bytes:
        rows = (DISK_BLOCKS, DISK_BLOCKS // 2, DISK_BLOCKS // 2, DISK_BLOCKS, DISK_BLOCKS // 2)
        return struct.pack("<QQQQQIIII24x", *rows, 4096, 255, 4096, 0)

    # The kernel's references

    def _forget(self, node: Node, body: bytes, _: Caller) -> None:
        self._drop(node.id, struct.unpack_from("<Q", body)[0])

    def _forget_many(self, _: Node, body: bytes, __: Caller) -> None:
        for number in range(struct.unpack_from("<I", body)[0]):
            self._drop(*struct.unpack_from("<QQ", body, 8 + 16 * number))

    def _drop(self, node_id: int, count: int) -> None:
        node = self.tree.nodes.get(node_id)
        if node is None or node is self.tree.root:
            return
        node.lookups -= count
        if node.lookups <= 0:
            del self.tree.nodes[node_id]


def _nothing(_: Node, __: bytes, ___: Caller) -> bytes:
    return b""


def _silence(_: Node, __: bytes, ___: Caller) -> None:
    """The kernel expects no answer."""


def _initialise(_: Node, __: bytes, ___: Caller) -> bytes:
    return struct.pack(
        "<IIIIHHIIHHIIIIIIII", 7, 31, 0, BIG_WRITES | MAX_PAGES, 12, 10, MAX_WRITE, 1, MAX_WRITE // 4096, *[0] * 9
    )


def _name(body: bytes) -> str:
    return body[: body.index(b"\0")].decode()


def _entry(node: Node) -> bytes:
    node.lookups += 1
    return ENTRY.pack(node.id, 0, 0, 0, 0, 0) + _attributes_of(node)


def _handle(node: Node) -> bytes:
    return struct.pack("<QII", node.id, DIRECT_IO, 0)


def _attributes_of(node: Node) -> bytes:
    seconds, rest_ns = divmod(node.modified_ns, 1_000_000_000)
    size = len(node.data)
    links = 2 if node.is_directory else 1
    times, parts = (seconds,) * 3, (rest_ns,) * 3
    return ATTRIBUTES.pack(
        node.id, size, (size + 511) // 512, *times, *parts, node.mode, links, *node.owner, 0, 4096, 0
    )


def main(mountpoint: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mount(b"dropping", mountpoint.encode(), b"fuse", NO_SUID | NO_DEVICES, options.encode())
    if done:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), mountpoint)
    disk = DroppingDisk(device)
    os.write(1, b"mounted\n")
    while True:
        ready, _, _ = select.select([device, 0], [], [])
        if device in ready and not disk.serve():
            return
        if 0 in ready:
            words = os.read(0, 100).split()
            if not words:
                return
            lost, names = disk.tree.cut(int(words[1]))
            os.write(1, b"%d %d\n" % (lost, names))


class MountedDisk:
    """The process, as seen from outside."""

    def __init__(self, mountpoint: Path) -> None:
        mountpoint.mkdir(parents=True)
        self.mountpoint = mountpoint
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.dropping_disk", str(mountpoint)],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if self._line() != "mounted":
            _, errors = self._process.communicate(timeout=30)
            raise NoMounts(f"no FUSE: {errors.decode().strip().splitlines()[-1:]}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def cut(self, seed: int) -> tuple[int, int]:
        """The bytes that are lost, and the changes of names that are taken back. No process may use the disk now."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"cut %d\n" % seed)
        self._process.stdin.flush()
        lost, names = map(int, self._line().split())
        return lost, names

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.mountpoint)], check=False)
        self._process.kill()
        self._process.wait(30)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@contextmanager
def dropping_disks(directory: Path) -> Iterator[dict[int, MountedDisk]]:
    """One for each node, in the place of its second log directory."""
    disks: dict[int, MountedDisk] = {}
    try:
        for node_id in (1, 2, 3):
            disks[node_id] = MountedDisk(directory / f"node-{node_id}" / "second")
        yield disks
    finally:
        for disk in disks.values():
            disk.close()


if __name__ == "__main__":
    main(sys.argv[1])
