"""What can happen to the files of one partition and of its log directory, each exactly the same at every call.

A partition of `damage_compared.live` has several segments, in each of them whole and aborted transactions.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from ottla.protocol.records import iterate_batches

Damage = Callable[[Path], None]
"""Of a partition's folder, and of what lies beside it in its log directory."""
NOISE = random.Random(5).randbytes(300)
ACTIVE, OLDER, FIRST = -1, -2, 0
_UUID = "0123456789abcdef0123456789abcdef"


def segment(folder: Path, which: int, suffix: str = ".log") -> Path:
    logs = sorted(folder.glob("*.log"))
    return logs[which].with_suffix(suffix)


def _batches(path: Path) -> list[int]:
    return [position for position, _ in iterate_batches(path.read_bytes())]


def _log(which: int, change: Callable[[bytes, list[int]], bytes]) -> Damage:
    """`change` gets the file and where its batches begin."""

    def inflict(folder: Path) -> None:
        path = segment(folder, which)
        path.write_bytes(change(path.read_bytes(), _batches(path)))

    return inflict


def _flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]


def _put(data: bytes, position: int, new: bytes) -> bytes:
    return data[:position] + new + data[position + len(new) :]


IN_A_LOG: dict[str, Callable[[bytes, list[int]], bytes]] = {
    "last batch torn": lambda data, at: data[: at[-1] + 70],
    "last header torn": lambda data, at: data[: at[-1] + 20],
    "emptied": lambda data, at: b"",
    "zeros behind": lambda data, at: data + bytes(300),
    "noise behind": lambda data, at: data + NOISE,
    "payload flipped in the middle": lambda data, at: _flip(data, at[len(at) // 2] + 75),
    "payload flipped in the first batch": lambda data, at: _flip(data, at[0] + 75),
    "payload flipped in the last batch": lambda data, at: _flip(data, at[-1] + 75),
    "crc flipped in the middle": lambda data, at: _flip(data, at[len(at) // 2] + 17),
    "magic changed in the middle": lambda data, at: _put(data, at[len(at) // 2] + 16, b"\x07"),
    "length beyond the end in the middle": lambda data, at: _put(data, at[len(at) // 2] + 8, struct.pack(">i", 1 << 28)),
    "length negative in the middle": lambda data, at: _put(data, at[len(at) // 2] + 8, struct.pack(">i", -5)),
    "base offset lower in the middle": lambda data, at: _put(data, at[len(at) // 2], bytes(8)),
    "a page of zeros in the middle": lambda data, at: _put(data, at[len(at) // 2], bytes(min(200, len(data) - at[len(at) // 2]))),
}  # fmt: skip


def _file(which: int, suffix: str, what: str) -> Damage:
    def inflict(folder: Path) -> None:
        path = segment(folder, which, suffix)
        if suffix == ".snapshot":
            path = sorted(folder.glob("*.snapshot"))[which]
        spoil(path, what)

    return inflict


def spoil(path: Path, what: str) -> None:
    data = path.read_bytes() if path.exists() else b""
    match what:
        case "missing":
            path.unlink(missing_ok=True)
        case "emptied":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: max(len(data) - 3, 0)])
        case "garbage":
            path.write_bytes(NOISE[:24])
        case "text":
            path.write_bytes(b"garbage\n")
        case "flipped":
            path.write_bytes(_flip(data, len(data) // 2))


def _named(name: str, what: str) -> Damage:
    return lambda folder: spoil(folder / name, what)


def _beside(name: str, what: str) -> Damage:
    return lambda folder: spoil(folder.parent / name, what)


def _write(name: str, text: str) -> Damage:
    def inflict(folder: Path) -> None:
        (folder / name).write_text(text)

    return inflict


def _copy_folder(name: str) -> Damage:
    def inflict(folder: Path) -> None:
        shutil.copytree(folder, folder.parent / name.format(folder=folder.name, uuid=_UUID))

    return inflict


def _leftover(which: int, suffixes: tuple[str, ...], end: str, *, move: bool = False) -> Damage:
    """A segment's files once more (or moved) under names that a crash leaves."""

    def inflict(folder: Path) -> None:
        for suffix in suffixes:
            path = segment(folder, which, suffix)
            if path.exists():
                (shutil.move if move else shutil.copy2)(path, f"{path}{end}")

    return inflict


def _without(which: int, *suffixes: str) -> Damage:
    def inflict(folder: Path) -> None:
        for path in [segment(folder, which, suffix) for suffix in suffixes]:
            path.unlink(missing_ok=True)

    return inflict


def _all_of(pattern: str, what: str) -> Damage:
    def inflict(folder: Path) -> None:
        for path in sorted(folder.glob(pattern)):
            spoil(path, what)

    return inflict


_FILES = (".log", ".index", ".timeindex", ".txnindex")
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
KINDS: dict[str, Damage] = {
    "nothing": lambda folder: None,
    **{f"active log: {what}": _log(ACTIVE, change) for what, change in IN_A_LOG.items()},
    **{f"older log: {what}": _log(OLDER, change) for what, change in IN_A_LOG.items()},
    **{
        f"{which} {suffix[1:]}: {what}": _file(number, suffix, what)
        for which, number in (("active", ACTIVE), ("older", OLDER))
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
        for what in ("missing", "emptied", "cut", "garbage")
    },
    "all snapshots: missing": _all_of("*.snapshot", "missing"),
    "all snapshots: garbage": _all_of("*.snapshot", "garbage"),
    "all txnindexes: missing": _all_of("*.txnindex", "missing"),
    **{
        f"leader-epoch-checkpoint: {what}": _named("leader-epoch-checkpoint", what)
        for what in ("missing", "emptied", "cut", "text")
    },
    "leader-epoch-checkpoint: of version 9": _write("leader-epoch-checkpoint", "9\n1\n0 0\n"),
    "leader-epoch-checkpoint: no epochs": _write("leader-epoch-checkpoint", "0\n0\n"),
    "leader-epoch-checkpoint: an epoch too many": _write("leader-epoch-checkpoint", "0\n2\n0 0\n7 99999\n"),
    **{f"partition.metadata: {what}": _named("partition.metadata", what) for what in ("missing", "emptied", "text")},
    "partition.metadata: another topic": _write("partition.metadata", "version: 0\ntopic_id: aaaaaaaaaaaaaaaaaaaaaA"),
    "partition.metadata: of version 7": _write("partition.metadata", "version: 7\ntopic_id: aaaaaaaaaaaaaaaaaaaaaA"),
    **{f"{name}: {what}": _beside(name, what) for name in CHECKPOINTS for what in ("missing", "emptied", "text", "cut")},
    ".kafka_cleanshutdown: text": _beside(".kafka_cleanshutdown", "text"),
    ".kafka_cleanshutdown: emptied": _beside(".kafka_cleanshutdown", "emptied"),
    "a folder of a topic that is not there": _copy_folder("ghost-0"),
    "a folder -delete": _copy_folder("{folder}.{uuid}-delete"),
    "a folder -stray": _copy_folder("{folder}.{uuid}-stray"),
    "a folder that is none": lambda folder: (folder.parent / "lost+found").mkdir(),
    "a folder with a name without number": lambda folder: (folder.parent / "odd-name").mkdir(),
    "a file beside": lambda folder: spoil(folder.parent / "readme", "text"),
    "a file in the folder": lambda folder: spoil(folder / "readme", "text"),
    "a folder in the folder": lambda folder: (folder / "inner").mkdir(),
    "leftover .deleted": _leftover(OLDER, _FILES, ".deleted"),
    "moved to .deleted": _leftover(FIRST, _FILES, ".deleted", move=True),
    "leftover .cleaned": _leftover(OLDER, _FILES, ".cleaned"),
    "leftover .swap": _leftover(OLDER, _FILES, ".swap"),
    "moved to .swap": _leftover(OLDER, _FILES, ".swap", move=True),
    "leftover .swap and .cleaned": lambda folder: (
        _leftover(OLDER, _FILES, ".swap")(folder), _leftover(FIRST, _FILES, ".cleaned")(folder), None)[-1],
    "only the index .swap": _leftover(OLDER, (".index",), ".swap"),
    "older segment missing": _without(OLDER, *_FILES),
    "first segment missing": _without(FIRST, *_FILES),
    "active segment missing": _without(ACTIVE, *_FILES),
    "older log missing, indexes there": _without(OLDER, ".log"),
    "no segments": _all_of("0*.*", "missing"),
    "folder empty": _all_of("*", "missing"),
    "folder missing": shutil.rmtree,
}  # fmt: skip
