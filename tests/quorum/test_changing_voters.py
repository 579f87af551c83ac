"""A quorum that grows from 1 to 3 voters and shrinks again, with real processes: by request, by auto join, by Kafka's tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.model.ids import ZERO_UUID, Uuid, uuid_from_str
from ottla.protocol.generated.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.protocol.generated.remove_raft_voter_request import RemoveRaftVoterRequest
from tests.quorum.members import CLUSTER_ID, UNHURRIED, Member, caught_up, leader_of, running, until
from tests.support.kafka_tools import MetadataQuorumCommand, run_tool
from tests.support.ports import free_ports

DUPLICATE_VOTER, VOTER_NOT_FOUND, INCONSISTENT_CLUSTER_ID, NOT_LEADER, REQUEST_TIMED_OUT = 126, 127, 104, 6, 7


def growing_quorum(directory: Path, count: int = 3, **more: str) -> list[Member]:
    """The first leads until it is removed."""
    ports = dict(zip(range(1, count + 1), free_ports(count), strict=True))
    settings = {**UNHURRIED, **more}
    members = [Member(directory / str(node_id), node_id, ports, dynamic=True, **settings) for node_id in ports]
    members[0].format("--standalone")
    for member in members[1:]:
        member.format("--no-initial-controllers")
    return members


def directory_id(member: Member) -> Uuid:
    text = (member.directory / "data/meta.properties").read_text()
    return uuid_from_str(next(line.split("=", 1)[1] for line in text.splitlines() if line.startswith("directory.id")))


def add(leader: Member, member: Member, *, cluster_id: str = CLUSTER_ID, timeout_ms: int = 20_000) -> int:
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=member.node_id,
        voter_directory_id=directory_id(member),
        listeners=[Listener("CONTROLLER", "127.0.0.1", member.port)],
        ack_when_committed=True,
    )
    return int(leader.ask(request, timeout_ms=60_000).error_code)


def remove(leader: Member, member: Member, directory: Uuid | None = None) -> int:
    request = RemoveRaftVoterRequest(CLUSTER_ID, member.node_id, directory or directory_id(member))
    return int(leader.ask(request, timeout_ms=60_000).error_code)


def voter_ids(leader: Member) -> list[int]:
    return sorted(voter.replica_id for voter in until(leader.describe).current_voters)


def observer_ids(leader: Member) -> set[int]:
    return {observer.replica_id for observer in until(leader.describe).observers}


@pytest.mark.timeout(180)
def test_one_becomes_three_and_the_first_leaves(tmp_path: Path) -> None:
    with running(growing_quorum(tmp_path)) as members:
        first, second, third = members
        until(lambda: leader_of([first]))
        assert add(first, second, cluster_id="another") == INCONSISTENT_CLUSTER_ID
        assert remove(first, second) == VOTER_NOT_FOUND
        assert remove(first, first) == VOTER_NOT_FOUND, "the last voter stays"
        until(lambda: observer_ids(first) >= {2, 3})
        assert voter_ids(first) == [1]
        assert add(first, second) == 0
        assert add(first, second) == DUPLICATE_VOTER
        assert add(first, third) == 0
        assert voter_ids(first) == [1, 2, 3]
        assert remove(second, third) == NOT_LEADER
        assert remove(first, third, ZERO_UUID) == VOTER_NOT_FOUND, "another directory is another voter"
        until(lambda: caught_up(members))
        assert remove(first, first) == 0
        leader = until(lambda: leader_of([second, third]))
        until(lambda: voter_ids(leader) == [2, 3])
        first.end()
        assert add(leader, first, timeout_ms=3_000) == REQUEST_TIMED_OUT, "a voter that does not run is not counted"
        assert voter_ids(leader) == [2, 3]


@pytest.mark.timeout(180)
def test_controllers_join_by_themselves_and_again_with_a_new_disk(tmp_path: Path) -> None:
    members = growing_quorum(tmp_path, **{"controller.quorum.auto.join.enable": "true"})
    with running(members):
        leader = until(lambda: leader_of(members[:1]))
        until(lambda: voter_ids(leader) == [1, 2, 3])
        old = directory_id(members[2])
        members[2].end()
        for path in sorted((tmp_path / "3/data").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        members[2].format("--no-initial-controllers")
        assert directory_id(members[2]) != old
        members[2].start()
        leader = until(lambda: leader_of(members))
        until(lambda: _directories(leader).get(3) == directory_id(members[2]), 90)


def _directories(leader: Member) -> dict[int, Uuid]:
    return {v.replica_id: v.replica_directory_id for v in until(leader.describe).current_voters}


@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
@pytest.mark.timeout(180)
def test_with_kafkas_own_tool(tmp_path: Path) -> None:
    with running(growing_quorum(tmp_path, 2)) as members:
        first, second = members
        until(lambda: leader_of([first]))
        until(lambda: observer_ids(first) >= {2})
        server = ("--bootstrap-controller", f"127.0.0.1:{first.port}")
        done = run_tool(MetadataQuorumCommand, *server, "--command-config", str(second.properties), "add-controller")
        assert done.returncode == 0, done.stdout + done.stderr
        assert voter_ids(first) == [1, 2]
        shown = run_tool(MetadataQuorumCommand, *server, "describe", "--replication")
        assert shown.returncode == 0, shown.stderr
        assert [line.split()[0] for line in shown.stdout.splitlines()[1:] if line.strip()] == ["1", "2"]
        directory = next(
            line.split("=")[1]
            for line in (second.directory / "data/meta.properties").read_text().splitlines()
            if line.startswith("directory.id")
        )
        arguments = ("remove-controller", "--controller-id", "2", "--controller-directory-id", directory)
        done = run_tool(MetadataQuorumCommand, *server, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert voter_ids(first) == [1]
