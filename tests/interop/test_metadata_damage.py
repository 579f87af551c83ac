"""The same damage in the last segment of the metadata log under Apache Kafka and under Ottla: the same topics are left.

What is behind the damage is cut off by both: topics that were made later are gone, and their folders are put aside.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol.records import iterate_batches
from tests.interop.ottla_server import OttlaServer
from tests.robustness.wire import create_topic, metadata, produce
from tests.support.apache_kafka import ApacheKafka
from tests.support.frames import RawConnection

pytestmark = [
    pytest.mark.interop,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("requires_apache_kafka"),
]

TOPICS = ("first", "second", "third")
DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "payload flipped": lambda data, at: data[: at + 75] + bytes([data[at + 75] ^ 16]) + data[at + 76 :],
    "length beyond the end": lambda data, at: data[: at + 8] + b"\x10\0\0\0" + data[at + 12 :],
    "a page of zeros": lambda data, at: data[:at] + bytes(100) + data[at + 100 :],
    "torn": lambda data, at: data[: at + 30],
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("metadata")
    with ApacheKafka(where) as kafka, RawConnection("127.0.0.1", kafka.port, timeout=20) as connection:
        for topic in TOPICS:
            assert create_topic(connection, topic) == 0
            while produce(connection, topic, 0, b"x")[0]:
                pass
    return where


def inflict(directory: Path, damage: str) -> None:
    """To the batch that made the second topic."""
    log = max((directory / "data/__cluster_metadata-0").glob("*.log"))
    data = log.read_bytes()
    (position,) = (at for at, header in iterate_batches(data) if data.find(b"\x07second", at, at + header.size) > 0)
    log.write_bytes(DAMAGES[damage](data, position))


def left(server: type[ApacheKafka], origin: Path, where: Path, damage: str) -> tuple[list[str], list[str]]:
    """The topics, and the folders without the random part of their names."""
    shutil.copytree(origin, where)
    inflict(where, damage)
    with server(where) as running, RawConnection("127.0.0.1", running.port, timeout=20) as connection:
        topics = sorted(str(topic.name) for topic in metadata(connection).topics)
        folders = [path.name.split(".")[0] + path.name[-6:] for path in (where / "data").iterdir() if path.is_dir()]
    return topics, sorted(folders)


@pytest.mark.parametrize("damage", DAMAGES)
def test_both_cut_the_metadata_at_the_damage(damage: str, origin: Path, tmp_path: Path) -> None:
    theirs, ours = (left(server, origin, tmp_path / server.__name__, damage) for server in (ApacheKafka, OttlaServer))
    assert ours == theirs
    assert ours[0] == ["first"]
    assert "second-0-stray" in ours[1]
