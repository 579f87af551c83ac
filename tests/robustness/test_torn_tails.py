"""Power loss: what was not synced is torn, zeroed or garbage. SIGKILL cannot show it, so copies are damaged by hand.

A folder is copied from under a running broker, everything behind the recovery points may be damaged, and a broker on
the copy must come up with a prefix of the batches that holds at least what was synced, and go on from there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from ottla.protocol.records import iterate_batches
from ottla.testing import Broker
from tests.robustness.wire import create_topic, produce, read_back
from tests.support.frames import RawConnection

SEGMENT_BYTES = 1 << 20
PROPERTIES = {"log.segment.bytes": str(SEGMENT_BYTES), "log.index.interval.bytes": "1024"}
VALUES = [b"%d " % number + bytes(number * 37 % 4000) for number in range(900)]
PER_BATCH = 5


def connect(broker: Broker) -> RawConnection:
    return RawConnection("127.0.0.1", int(broker.bootstrap_servers.rsplit(":", 1)[1]), timeout=20)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A folder with two segments as a killed server leaves it: no clean shutdown, nothing checkpointed."""
    directory = tmp_path_factory.mktemp("original")
    copy = directory / "copy"
    with Broker(directory=directory / "live", properties=PROPERTIES) as broker, connect(broker) as connection:
        assert create_topic(connection, "t") == 0
        for start in range(0, len(VALUES), PER_BATCH):
            assert produce(connection, "t", 0, *VALUES[start : start + PER_BATCH])[0] == 0
        # Checkpoints are written meanwhile, beside their names and then under them.
        shutil.copytree(directory / "live", copy, ignore=shutil.ignore_patterns("*.tmp"))
    assert len(list((copy / "data/t-0").glob("*.log"))) == 2
    return copy


def tail_of(directory: Path) -> Path:
    return max((directory / "data/t-0").glob("*.log"))


def values_in(logs: list[Path]) -> int:
    return sum(header.record_count for log in logs for _, header in iterate_batches(log.read_bytes()))


def boundaries(log: Path) -> list[int]:
    data = log.read_bytes()
    return [position for position, _ in iterate_batches(data)] + [len(data)]


def damage(random: Random, log: Path) -> int:
    """Spoil the file from a random place on; up to where it is still good."""
    size = log.stat().st_size
    at = random.randrange(size)
    with log.open("r+b") as file:
        match random.randrange(5):
            case 0:
                file.truncate(at)
            case 1:  # the size was written, the pages were not
                file.seek(at)
                file.write(bytes(size - at))
            case 2:
                file.seek(at)
                file.write(random.randbytes(size - at))
            case 3:  # one page lost in the midst
                at -= at % 4096
                file.seek(at)
                file.write(bytes(min(4096, size - at)))
            case 4:  # one flipped bit
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ (1 << random.randrange(8))]))
    return at


def spoil_indexes(random: Random, directory: Path) -> None:
    for path in sorted(directory.iterdir()):
        if path.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}:
            match random.randrange(5):
                case 0:
                    path.unlink()
                case 1:
                    path.write_bytes(b"")
                case 2:
                    path.write_bytes(random.randbytes(random.randrange(1, 200)))
                case 3:
                    path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size + 1)])
                case _:
                    pass


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_tail_is_cut_at_a_batch(tmp_path, original, seed):
    random = Random(seed)
    directory = tmp_path / "copy"
    shutil.copytree(original, directory)
    tail = tail_of(directory)
    edges = boundaries(tail)
    good_until = damage(random, tail)
    spoil_indexes(random, tail.parent)
    # What lies wholly before the damage must be kept. A batch that was hit may survive: a bit of its base offset is
    # not covered by the CRC, and Kafka would not see it either, nor a zero where a zero was.
    whole = max(edge for edge in edges if edge <= good_until)
    kept = values_in([log for log in tail.parent.glob("*.log") if log != tail])
    kept += sum(h.record_count for p, h in iterate_batches(tail_of(original).read_bytes()) if p < whole)
    with Broker(directory=directory, properties=PROPERTIES) as broker, connect(broker) as connection:
        values = read_back(connection, "t", 0)
        assert values == VALUES[: len(values)]
        assert len(values) >= kept
        assert produce(connection, "t", 0, b"next") == (0, len(values))
        assert read_back(connection, "t", 0) == [*values, b"next"]
    with Broker(directory=directory, properties=PROPERTIES) as broker, connect(broker) as connection:
        assert read_back(connection, "t", 0) == [*values, b"next"]


@pytest.mark.parametrize("garbage", [b"\0" * 5000, b"\xff" * 61, b"x", b"half"])
def test_garbage_behind_the_last_batch(tmp_path, original, garbage):
    directory = tmp_path / "copy"
    shutil.copytree(original, directory)
    tail = tail_of(directory)
    data = tail.read_bytes()
    start, end = boundaries(tail)[-2:]
    tail.write_bytes(data + (data[start : (start + end) // 2] if garbage == b"half" else garbage))
    with Broker(directory=directory, properties=PROPERTIES) as broker, connect(broker) as connection:
        assert read_back(connection, "t", 0) == VALUES
        assert produce(connection, "t", 0, b"next") == (0, len(VALUES))


@pytest.mark.parametrize("garbage", [b"\0" * 5000, b"\xff" * 61, b"x", b"half"])
def test_garbage_behind_the_metadata(tmp_path, original, garbage):
    """Committed metadata is synced; what follows it in the file was never answered."""
    directory = tmp_path / "copy"
    shutil.copytree(original, directory)
    log = max((directory / "data/__cluster_metadata-0").glob("*.log"))
    data = log.read_bytes()
    start, end = boundaries(log)[-2:]
    log.write_bytes(data + (data[start : (start + end) // 2] if garbage == b"half" else garbage))
    with Broker(directory=directory, properties=PROPERTIES) as broker, connect(broker) as connection:
        assert read_back(connection, "t", 0) == VALUES
        assert create_topic(connection, "new") == 0
    with Broker(directory=directory, properties=PROPERTIES) as broker, connect(broker) as connection:
        assert produce(connection, "new", 0, b"x") == (0, 0)


@pytest.mark.parametrize("content", [b"", b"garbage\n", None])
@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "t-0/leader-epoch-checkpoint",
    ],
)
def test_damaged_checkpoints_are_made_again(tmp_path, original, name, content):
    directory = tmp_path / "copy"
    shutil.copytree(original, directory)
    file = directory / "data" / name
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)
    with Broker(directory=directory, properties=PROPERTIES) as broker, connect(broker) as connection:
        assert read_back(connection, "t", 0) == VALUES
        assert produce(connection, "t", 0, b"next") == (0, len(VALUES))
