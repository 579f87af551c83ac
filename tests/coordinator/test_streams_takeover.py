"""One data folder, from Ottla to Apache Kafka and back: a streams group with members goes on where it was.

The members live through it: they beat with the epochs that the first server gave them, and the next one neither fences
them nor rebalances. Then the group goes on changing, standby tasks included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.metadata.image import RESOURCE_GROUP
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest
from tests.coordinator.offset_exchanges import committing
from tests.coordinator.streams_topologies import beating, task_ids, word_count
from tests.coordinator.test_consumer_takeover import await_, is_visible
from tests.interop.differential.pair import Side
from tests.interop.differential.servers import Address
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240), pytest.mark.usefixtures("requires_apache_kafka")]

GROUP = "app"
TOPICS = ("lines", "again", "log")


class Threads:
    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.active: dict[str, dict[str, list[int]]] = {}
        self.standby: dict[str, dict[str, list[int]]] = {}

    def join(self, side: Side, member: str) -> None:
        self.active[member], self.standby[member] = {}, {}
        self._take(member, side.ask(beating(GROUP, member, 0, word_count(*TOPICS)), 0))

    def beat(self, side: Side, member: str, *, silently: bool = False) -> Any:
        request = beating(GROUP, member, self.epochs[member])
        if not silently:
            request.active_tasks, request.standby_tasks = task_ids(self.active[member]), task_ids(self.standby[member])
            request.warmup_tasks = []
        answer = side.ask(request, 0)
        self._take(member, answer)
        return answer

    def _take(self, member: str, answer: Any) -> None:
        assert answer.error_code == 0, answer
        self.epochs[member] = answer.member_epoch
        if answer.active_tasks is not None:
            self.active[member] = {tasks.subtopology_id: tasks.partitions for tasks in answer.active_tasks}
            self.standby[member] = {tasks.subtopology_id: tasks.partitions for tasks in answer.standby_tasks}

    def settle(self, side: Side) -> None:
        def settled() -> bool:
            for member in self.epochs:
                self.beat(side, member)
            return bool(described(side).group_state == "Stable")

        await_(settled)


def side_of(server: ApacheKafka) -> Side:
    side = Side(Address("any", server.port, server.controller_port, server.directory, server.log_file))
    await_(lambda: side.ask(FindCoordinatorRequest(GROUP, 0), 3).error_code == 0)
    await_(lambda: described(side).error_code in (0, 69))
    return side


def described(side: Side) -> Any:
    answer: Any = side.ask(StreamsGroupDescribeRequest([GROUP], False), 0)
    group = answer.groups[0]
    group.members.sort(key=lambda member: member.member_id)
    if group.topology is not None:
        # A server that has just loaded the group does not know yet how many partitions its internal topics have.
        for subtopology in group.topology.subtopologies:
            for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
                topic.partitions = 0
    return group


def prepare(side: Side) -> None:
    side.ask(CreateTopicsRequest([CreatableTopic(name, 3, 1) for name in TOPICS], 10_000), 7)
    settings = [
        AlterableConfig(f"streams.{name}", 0, value)
        for name, value in (
            ("num.standby.replicas", "1"), ("initial.rebalance.delay.ms", "0"), ("assignment.interval.ms", "0"),
        )
    ]  # fmt: skip
    resource = AlterConfigsResource(RESOURCE_GROUP, GROUP, settings)
    side.ask(IncrementalAlterConfigsRequest([resource], False), 1)
    await_(lambda: all(is_visible(side, name) for name in TOPICS))


def test_threads_live_through_two_changes_of_server(tmp_path: Path) -> None:
    threads = Threads()
    with OttlaServer(tmp_path) as server:
        side = side_of(server)
        prepare(side)
        for member in ("a", "b"):
            threads.join(side, member)
        threads.settle(side)
        commit = committing(GROUP, {"lines": {0: 11}}, generation=threads.epochs["a"], member="a")
        assert side.ask(commit, 9).topics[0].partitions[0].error_code == 0
        before = described(side)
    for next_server, newcomer in ((ApacheKafka, "c"), (OttlaServer, "d")):
        with next_server(tmp_path) as server:
            side = side_of(server)
            assert described(side) == before
            for member in threads.epochs:
                assert threads.beat(side, member, silently=True).active_tasks is None
            # Nobody rebalanced: the hash of the topics and the settings of the last assignment are the same.
            assert described(side) == before
            threads.join(side, newcomer)
            threads.settle(side)
            before = described(side)
            assert len(before.members) == len(threads.epochs)
            assert threads.standby[newcomer] or threads.active[newcomer]
