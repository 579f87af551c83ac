"""One data folder, two servers: a share group goes on where it was, in both directions. What was accepted under the one
does not come again under the other, what was released does, and the deliveries are counted on.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.primitives import Message
from tests.coordinator.share_exchanges import ACCEPT, RELEASE, UNTIL_THERE_MS, acknowledge, beating, fetch
from tests.interop.differential.batches import batch, produce
from tests.interop.differential.pair import Request, Side
from tests.interop.differential.servers import Address
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240), pytest.mark.usefixtures("requires_apache_kafka")]

GROUP, TOPIC = "jobs", "work"
_GROUP_RESOURCE = 32
_PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
    "log.retention.ms": "-1",
}


class Session:
    """A member on one server."""

    def __init__(self, server: ApacheKafka, name: str) -> None:
        self.side = Side(Address(name, server.port, server.controller_port, server.directory, server.log_file))

    def ask(self, request: Request, version: int) -> Any:
        message = request if isinstance(request, Message) else request(self.side)
        self.side.send(message, version)
        return self.side.receive(message.API_KEY, version)

    def join(self, member: str) -> None:
        deadline = time.monotonic() + 60
        while self.ask(FindCoordinatorRequest("", 0, [GROUP]), 6).coordinators[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        epoch = 0
        while True:
            answer = self.ask(beating(GROUP, epoch, None if epoch else [TOPIC], member), 1)
            epoch = answer.member_epoch if not answer.error_code else 0
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

    def read(self, member: str) -> list[tuple[int, int, int]]:
        answer = self.ask(fetch(GROUP, 0, TOPIC, member=member, max_wait_ms=UNTIL_THERE_MS), 2)
        assert answer.error_code == 0, answer
        rows = answer.responses[0].partitions[0]
        assert rows.error_code == 0, rows
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in rows.acquired_records]

    def settle(self, member: str, batches: list[tuple[int, int, list[int]]]) -> None:
        answer = self.ask(acknowledge(GROUP, -1, TOPIC, batches, member=member), 2)
        assert answer.error_code == 0, answer
        assert answer.responses[0].partitions[0].error_code == 0, answer
        assert self.ask(beating(GROUP, -1, None, member), 1).error_code == 0

    def start_offset(self) -> tuple[int, int]:
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(GROUP, None)])
        row = self.ask(request, 1).groups[0].topics[0].partitions[0]
        return row.start_offset, row.lag


def _prepare(session: Session) -> None:
    session.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], 10_000), 7)
    setting = [AlterableConfig("share.auto.offset.reset", 0, "earliest")]
    session.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(_GROUP_RESOURCE, GROUP, setting)], False), 1)
    deadline = time.monotonic() + 20
    data = batch(*[str(number).encode() for number in range(10)])
    while session.ask(produce(TOPIC, data, version=9), 9).responses[0].partition_responses[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("first", [OttlaServer, ApacheKafka], ids=["from-ottla", "from-apache"])
def test_deliveries_move_with_the_folder(first: type[ApacheKafka], tmp_path: Path) -> None:
    second = ApacheKafka if first is OttlaServer else OttlaServer
    before = first(tmp_path / "node", properties=_PROPERTIES)
    before.start()
    try:
        session = Session(before, "first")
        _prepare(session)
        session.join("one")
        assert session.read("one") == [(0, 9, 1)]
        session.settle("one", [(0, 3, [ACCEPT]), (4, 6, [RELEASE]), (7, 7, [ACCEPT]), (8, 9, [RELEASE])])
        place = session.start_offset()
        session.side.close()
    finally:
        before.stop()
    after = second(tmp_path / "node", properties=before.properties)
    after.port, after.controller_port = before.port, before.controller_port
    after.start()
    try:
        session = Session(after, "second")
        session.join("two")
        assert session.start_offset() == place
        taken = [(number, count) for first_, last, count in session.read("two") for number in range(first_, last + 1)]
        assert taken == [(number, 2) for number in (4, 5, 6, 8, 9)]
        session.settle("two", [(4, 6, [ACCEPT]), (8, 9, [ACCEPT])])
        assert session.start_offset()[1] == 0
        session.side.close()
    finally:
        after.stop()
