"""cordoned.log.dirs (KIP-1066): a directory that gets no new partitions, while the node runs. The same at Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.generated import alter_replica_log_dirs_request as moving
from ottla.protocol.generated import create_partitions_request as growing
from ottla.protocol.generated import create_topics_request as creating
from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.interop.ottla_server import OttlaServer
from tests.security.session import Session
from tests.support.apache_kafka import ApacheKafka

INVALID_ASSIGNMENT, INVALID_FACTOR, INVALID_REQUEST = 39, 38, 42


class Node:
    def __init__(self, admin: Session, paths: list[str]) -> None:
        self._admin = admin
        self.paths = paths

    def cordon(self, value: str, *, then: list[bool] | None = None) -> int:
        """The code; once it is taken, waits until the node says `then` of its directories."""
        config = AlterableConfig("cordoned.log.dirs", 0, value)
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", [config])])
        code = int(self._admin.ask(request, 1).responses[0].error_code)
        if then is not None:
            until(lambda: [self._described()[path][0] for path in self.paths] == then)
        return code

    def create(self, name: str, partitions: int, *, assigned: bool = False) -> int:
        topic = creating.CreatableTopic(name, partitions, 1)
        if assigned:
            rows = [creating.CreatableReplicaAssignment(index, [1]) for index in range(partitions)]
            topic = creating.CreatableTopic(name, -1, -1, rows)
        return int(self._admin.ask(creating.CreateTopicsRequest([topic], 20_000), 7).topics[0].error_code)

    def grow(self, name: str, count: int) -> int:
        request = growing.CreatePartitionsRequest([growing.CreatePartitionsTopic(name, count, None)], 20_000)
        return int(self._admin.ask(request, 3).results[0].error_code)

    def move(self, name: str, partition: int, path: str) -> int:
        topic = moving.AlterReplicaLogDirTopic(name, [partition])
        answer = self._admin.ask(moving.AlterReplicaLogDirsRequest([moving.AlterReplicaLogDir(path, [topic])]), 2)
        return int(answer.results[0].partitions[0].error_code)

    def counts(self, name: str, total: int) -> list[int]:
        """How many partitions of the topic each directory has, when all are there."""
        until(lambda: sum(self._counts(name)) == total)
        return self._counts(name)

    def _counts(self, name: str) -> list[int]:
        found = self._described()
        return [found[path][1].get(name, 0) for path in self.paths]

    def _described(self) -> dict[str, tuple[bool, dict[str, int]]]:
        answer = self._admin.ask(DescribeLogDirsRequest(None), 5)
        return {
            each.log_dir: (each.is_cordoned, {topic.name: len(topic.partitions) for topic in each.topics})
            for each in answer.results
        }


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


@pytest.fixture(params=["ottla", pytest.param("apache", marks=[pytest.mark.soak, pytest.mark.interop])])
def node(request: Any, tmp_path: Path) -> Iterator[Node]:
    server = OttlaServer(tmp_path) if request.param == "ottla" else ApacheKafka(tmp_path)
    paths = [str(server.data_dir), str(tmp_path / "second")]
    server.properties |= {"log.dirs": ",".join(paths), "cordoned.log.dirs": paths[1]}
    try:
        server.start()
        with Session(server.port) as admin:
            yield Node(admin, paths)
    finally:
        server.kill()


@pytest.mark.timeout(120)
def test_nothing_new_comes_into_a_cordoned_directory(node: Node) -> None:
    both = ",".join(node.paths)
    assert node.create("first", 4) == 0, "cordoned since the start"
    assert node.counts("first", 4) == [4, 0]
    assert node.move("first", 0, node.paths[1]) == INVALID_ASSIGNMENT
    assert node.cordon("/nowhere") == INVALID_REQUEST
    for value in (both, "*"):
        assert node.cordon(value, then=[True, True]) == 0
        until(lambda: node.create("none", 1) == INVALID_FACTOR)  # the controller hears of it by a heartbeat
        assert node.grow("first", 6) == INVALID_FACTOR
        assert node.cordon("", then=[False, False]) == 0
        until(lambda value=value: node.create(f"again-{len(value)}", 1) == 0)
    assert node.cordon(both, then=[True, True]) == 0
    assert node.create("placed", 2, assigned=True) == 0, "who says where gets it all the same"
    assert sum(node.counts("placed", 2)) == 2
    assert node.cordon(node.paths[0], then=[True, False]) == 0
    until(lambda: node.create("second", 4) == 0)
    assert node.counts("second", 4) == [0, 4]
    assert node.move("first", 0, node.paths[1]) == 0
    until(lambda: node.counts("first", 4) == [3, 1])
