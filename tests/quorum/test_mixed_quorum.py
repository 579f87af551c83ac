"""Quorums of Ottla's and Apache Kafka's own controllers: each leads the other, on one log, through every death."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.quorum.members import KafkaMember, Member, caught_up, running, until, view_of
from tests.support.kafka_tools import DumpLogSegments, MetadataQuorumCommand, run_tool
from tests.support.ports import free_ports

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]


def kill_until_both_have_led(members: list[Member], rounds: int) -> set[type[Member]]:
    led: set[type[Member]] = set()
    for _ in range(rounds):
        leader, before = until(lambda: caught_up(members), 90)
        led.add(type(leader))
        if len(led) == 2:
            break
        leader.end()
        until(lambda before=before: _goes_on(members, before), 90)  # type: ignore[misc]
        leader.start()
    return led


def _goes_on(members: list[Member], before: Any) -> bool:
    """Whether a leader of a later epoch has the records that were committed before."""
    leader_view = view_of(members)
    if leader_view is None:
        return False
    assert leader_view[1].leader_epoch > before.leader_epoch
    return bool(leader_view[1].high_watermark >= before.high_watermark)


@pytest.mark.timeout(400)
def test_both_kinds_lead_in_turn(tmp_path: Path) -> None:
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    members = [
        Member(tmp_path / "1", 1, ports),
        Member(tmp_path / "2", 2, ports),
        KafkaMember(tmp_path / "3", 3, ports),
    ]
    for member in members:
        member.format()
    with running(members):
        led = kill_until_both_have_led(members, 12)
        assert led == {Member, KafkaMember}
        status = run_tool(
            MetadataQuorumCommand, "--bootstrap-controller", f"127.0.0.1:{members[0].port}", "describe", "--status"
        )
        assert status.returncode == 0, status.stderr
        assert "MaxFollowerLag" in status.stdout
    for member in members:
        log = member.directory / "data/__cluster_metadata-0/00000000000000000000.log"
        dump = run_tool(DumpLogSegments, "--cluster-metadata-decoder", "--files", str(log))
        assert dump.returncode == 0, dump.stderr
        assert "LeaderChange" in dump.stdout
