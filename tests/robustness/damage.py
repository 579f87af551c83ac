"""Files of a data directory, damaged: which kinds there are, what can happen to one, and what a server makes of it.

The directory comes from `lived_in`: two log directories with something of every kind of file. A case is a kind of file,
a kind of damage and a seed. `look` sees a server as raw bytes: every batch of every partition as it is fetched, so that
two servers, or one before and after, can be compared whole.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ottla.model.errors import KafkaError
from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.records import BatchHeader, iterate_batches
from tests.robustness.wire import Closed, call
from tests.support.frames import RawConnection

Partition = tuple[str, int]
METADATA = "__cluster_metadata-0"
MANY = 16 << 20
_NO_LEADER = frozenset({3, 5, 6, 9, 100})

# ---------------------------------------------------------------------------------------------------------- which file


def _segments(folder: Path, suffix: str) -> list[Path]:
    return sorted(path for path in folder.glob(f"*{suffix}") if path.is_file())


def _in_partitions(suffix: str, *, last: bool | None = None) -> Callable[[list[Path]], list[Path]]:
    """Files of the partitions by suffix: of the last segment, of the earlier ones, or of all."""

    def find(dirs: list[Path]) -> list[Path]:
        found = []
        for directory in dirs:
            for folder in sorted(
                path
                for path in directory.iterdir()
                if path.is_dir() and path.name[-1].isdigit() and path.name != METADATA
            ):
                files = [path for path in _segments(folder, suffix) if path.stat().st_size or last is None]
                found += files[-1:] if last else files[:-1] if last is False else files
        return found

    return find


def _named(pattern: str, *, metadata: bool = False) -> Callable[[list[Path]], list[Path]]:
    """Files of the directories by name, or those of the metadata log."""
    return lambda dirs: sorted(
        path for directory in dirs for path in (directory / METADATA if metadata else directory).glob(pattern)
    )


KINDS: dict[str, Callable[[list[Path]], list[Path]]] = {
    "log, earlier segment": _in_partitions(".log", last=False),
    "log, last segment": _in_partitions(".log", last=True),
    "index": _in_partitions(".index"),
    "timeindex": _in_partitions(".timeindex"),
    "txnindex": _in_partitions(".txnindex"),
    "snapshot": _in_partitions(".snapshot"),
    "leader-epoch-checkpoint": _in_partitions("leader-epoch-checkpoint"),
    "partition.metadata": _in_partitions("partition.metadata"),
    "meta.properties": _named("meta.properties"),
    "recovery-point-offset-checkpoint": _named("recovery-point-offset-checkpoint"),
    "log-start-offset-checkpoint": _named("log-start-offset-checkpoint"),
    "replication-offset-checkpoint": _named("replication-offset-checkpoint"),
    "cleaner-offset-checkpoint": _named("cleaner-offset-checkpoint"),
    ".kafka_cleanshutdown": _named(".kafka_cleanshutdown"),
    "bootstrap.checkpoint": _named("bootstrap.checkpoint"),
    "metadata log": _named("*.log", metadata=True),
    "metadata index": _named("*.index", metadata=True),
    "metadata snapshot": lambda dirs: _named("*.checkpoint", metadata=True)(dirs)[-1:],
    "metadata epochs": _named("leader-epoch-checkpoint", metadata=True),
    "metadata partition.metadata": _named("partition.metadata", metadata=True),
    "quorum-state": _named("quorum-state", metadata=True),
}

# --------------------------------------------------------------------------------------------------------- what happens


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data)) if data else 0])


def _append_zeros(path: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(bytes(rng.choice([1, 7, 12, 4096, 100_000])))


def _append_noise(path: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randint(1, 5000)))


def _zero_out(path: Path, rng: random.Random) -> None:
    """A stretch of zeros, as a disk leaves for a page that was never written."""
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data)) if data else 0
    end = min(len(data), start + rng.choice([8, 100, 4096]))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def _replace_by_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()
    if rng.random() < 0.5:
        (path / "file").write_bytes(b"x")


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "emptied": lambda path, rng: path.write_bytes(b""),
    "cut": _cut,
    "bits flipped": _flip,
    "stretch of zeros": _zero_out,
    "zeros appended": _append_zeros,
    "noise appended": _append_noise,
    "removed": lambda path, rng: path.unlink(),
    "a folder": _replace_by_folder,
    "unreadable": lambda path, rng: path.chmod(0),
}


@dataclass(frozen=True)
class Case:
    kind: str
    damage: str
    seed: int
    killed: bool = False
    """Whether the server before was killed: without the marker of a clean stop more is read again."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.damage} (seed {self.seed}{', killed' if self.killed else ''})"

    def inflict(self, dirs: list[Path]) -> Path:
        """Damage one file below `dirs`; which."""
        rng = random.Random(f"{self.kind}/{self.damage}/{self.seed}")
        candidates = KINDS[self.kind](dirs)
        if not candidates:
            raise LookupError(f"there is no {self.kind}")
        path = rng.choice(candidates)
        DAMAGES[self.damage](path, rng)
        return path


def every_case(seeds: range, *, killed: bool = False) -> list[Case]:
    return [Case(kind, damage, seed, killed) for kind in KINDS for damage in DAMAGES for seed in seeds]


# ---------------------------------------------------------------------------------------------------------- what is seen


@dataclass(frozen=True)
class SeenPartition:
    error: int
    """Of the first fetch or look-up that failed; 0 when all is there."""
    start: int = -1
    end: int = -1
    batches: bytes = b""
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer and first offset of the aborted transactions that a read_committed fetch is told of."""

    def summary(self) -> str:
        if self.error:
            return f"error {self.error}"
        sizes = f"{len(_headers(self.batches))} batches, {len(self.batches)} bytes"
        return f"{self.start}..{self.end}, {sizes}, {len(self.aborted)} aborted"


@dataclass
class Seen:
    partitions: dict[Partition, SeenPartition] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)
    """Log directory (the last part of its path) -> error."""


def look(port: int, patience: float = 8) -> Seen:
    """Everything that a server has, partitions of the coordinators included. A partition that has no leader here gets
    `patience` seconds in all to find one.
    """
    seen = Seen()
    deadline = time.monotonic() + patience
    with RawConnection("127.0.0.1", port, timeout=20) as connection:
        answer = call(connection, MetadataRequest(None, allow_auto_topic_creation=False))
        for topic in sorted(answer.topics, key=lambda topic: str(topic.name)):
            for number in sorted(int(partition.partition_index) for partition in topic.partitions):
                at = (str(topic.name), number)
                while (found := look_at(connection, at)).error in _NO_LEADER and time.monotonic() < deadline:
                    time.sleep(0.05)
                seen.partitions[at] = found
        for directory in call(connection, DescribeLogDirsRequest(None)).results:
            seen.directories[Path(directory.log_dir).name] = directory.error_code
    return seen


def look_at(connection: RawConnection, at: Partition) -> SeenPartition:
    found = []
    for timestamp in (-2, -1):
        asked = [ListOffsetsTopic(at[0], [ListOffsetsPartition(at[1], -1, timestamp)])]
        answer = call(connection, ListOffsetsRequest(-1, 0, asked), 7).topics[0].partitions[0]
        if answer.error_code:
            return SeenPartition(answer.error_code)
        found.append(answer.offset)
    start, end = found
    error, batches, _ = _fetch(connection, at, start, end, isolation=0)
    if error:
        return SeenPartition(error, start, end)
    error, _, aborted = _fetch(connection, at, start, end, isolation=1)
    return SeenPartition(error, start, end, batches, aborted)


def _fetch(
    connection: RawConnection, at: Partition, start: int, end: int, isolation: int
) -> tuple[int, bytes, tuple[tuple[int, int], ...]]:
    pieces, aborted, offset = [], set(), start
    while offset < end:
        wanted = [FetchPartition(at[1], fetch_offset=offset, partition_max_bytes=MANY)]
        topics = [FetchTopic(at[0], partitions=wanted)]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MANY, isolation_level=isolation, topics=topics)
        answer = call(connection, request, 11).responses[0].partitions[0]
        if answer.error_code:
            return answer.error_code, b"", ()
        aborted |= {(txn.producer_id, txn.first_offset) for txn in answer.aborted_transactions or ()}
        data = bytes(answer.records or b"")
        pieces.append(data)
        headers = _headers(data)
        if not headers or headers[-1].last_offset < offset:
            break
        offset = headers[-1].last_offset + 1
    return 0, b"".join(pieces), tuple(sorted(aborted))


def _headers(data: bytes) -> list[BatchHeader]:
    """As far as they can be followed."""
    found = []
    with contextlib.suppress(KafkaError):
        for _, header in iterate_batches(data):
            found.append(header)
    return found


def copied(source: list[Path], target: Path) -> list[Path]:
    """The directories beside each other below `target`, with the times of the files."""
    return [Path(shutil.copytree(directory, target / directory.name)) for directory in source]


__all__ = ["DAMAGES", "KINDS", "Case", "Closed", "Seen", "SeenPartition", "copied", "every_case", "look", "look_at"]
