"""Random joins, leaves, deaths, timeouts, restarts: the group keeps its invariants, and the log replays to the same
state."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.transcript import subscription
from tests.coordinator.virtual_world import World

GROUP = "g"
PARTITIONS = range(5)
LONG_MS = 3_600_000


class Client:
    """A consumer like a real client: it follows the answers while it is alive."""

    def __init__(self, number: int, instance: str | None, protocols: tuple[str, ...]) -> None:
        self.number = number
        self.instance = instance
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        self.parked = False


class Groups(RuleBasedStateMachine):
    clients: Bundle[Client] = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(GroupCoordinatorSettings(group_initial_rebalance_delay_ms=3000, group_max_size=6))
        self.everybody: list[Client] = []
        self.unanswered: dict[int, str] = {}
        self.requests = 0
        self.incarnation = 0
        self.assignments: dict[tuple[int, int], dict[str, bytes]] = {}

    def waiter(self, what: str, on_answer: Any) -> Any:
        number = self.requests = self.requests + 1
        incarnation = self.incarnation
        self.unanswered[number] = what

        def take(response: Any) -> None:
            assert incarnation == self.incarnation, "an answer after the restart of its server"
            assert self.unanswered.pop(number, None) == what, f"{what} was answered twice"
            on_answer(response)

        return take

    @rule(
        target=clients,
        instance=st.sampled_from([None, None, None, "one", "two"]),
        protocols=st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")]),
    )
    def start_client(self, instance: str | None, protocols: tuple[str, ...]) -> Client:
        client = Client(len(self.everybody) + 1, instance, protocols)
        self.everybody.append(client)
        return client

    @rule(leaders_last=st.booleans())
    def everybody_joins_and_syncs(self, leaders_last: bool) -> None:
        """What random steps alone seldom reach: a whole generation."""
        for client in self.everybody:
            self.join(client, 3)
        self.world.time.advance(30_000)
        for client in sorted(self.everybody, key=lambda candidate: bool(candidate.members) == leaders_last):
            self.sync(client)

    @rule(client=clients, version=st.sampled_from([3, 5, 9]))
    def join(self, client: Client, version: int) -> None:
        def on_answer(response: Any) -> None:
            client.parked = False
            if isinstance(response, KafkaError):
                return
            code = ErrorCode(response.error_code)
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
                client.member_id = ""
            elif response.member_id:
                client.member_id = response.member_id
            if code is ErrorCode.NONE:
                client.generation = response.generation_id
                client.members = [member.member_id for member in response.members]

        protocols = [JoinGroupRequestProtocol(name, subscription(["t"])) for name in client.protocols]
        request = JoinGroupRequest(GROUP, 10_000, 30_000, client.member_id, client.instance, "consumer", protocols)
        client.parked = True
        caller = Caller(f"client-{client.number}", "/host", version)
        self.world.coordinator.join(caller, request, self.waiter("join", on_answer))

    @rule(client=clients)
    def sync(self, client: Client) -> None:
        """A leader spreads the partitions over the members that its JoinGroup named."""
        plan = dict.fromkeys(client.members, b"")
        if plan:
            names = sorted(plan)
            for partition in PARTITIONS:
                plan[names[partition % len(names)]] += str(partition).encode()
        key = self.incarnation, client.generation
        member_id = client.member_id
        group = self.world.machine().groups.get(GROUP)
        leads = group is not None and group.leader_id == member_id and group.generation_id == client.generation

        def on_answer(response: Any) -> None:
            if isinstance(response, KafkaError) or response.error_code:
                return
            assert response.assignment == self.durable_assignments().get(member_id, b"")
            self.assignments.setdefault(key, {}).setdefault(member_id, response.assignment)
            assert self.assignments[key][member_id] == response.assignment, "two assignments in one generation"

        before = group.state if group is not None else None
        request = SyncGroupRequest(
            GROUP,
            client.generation,
            member_id,
            client.instance,
            assignments=[SyncGroupRequestAssignment(name, part) for name, part in plan.items()],
        )
        self.world.coordinator.sync(request, self.waiter("sync", on_answer))
        if leads and before is GroupState.COMPLETING_REBALANCE and group is not None and client.instance is None:
            assert group.state is GroupState.STABLE

    def durable_assignments(self) -> dict[str, bytes]:
        group = self.world.machine().groups[GROUP]
        return {member.member_id: member.assignment for member in group.members.values()}

    @rule(client=clients)
    def heartbeat(self, client: Client) -> None:
        def on_answer(response: Any) -> None:
            if isinstance(response, KafkaError):
                return
            if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""

        request = HeartbeatRequest(GROUP, client.generation, client.member_id, client.instance)
        self.world.coordinator.heartbeat(request, self.waiter("heartbeat", on_answer))

    @rule(client=clients)
    def leave(self, client: Client) -> None:
        identity = MemberIdentity(client.member_id, client.instance)
        request = LeaveGroupRequest(GROUP, members=[identity])
        self.world.coordinator.leave(request, self.waiter("leave", lambda _: None))

    @rule(client=clients, partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 100), managed=st.booleans())
    def commit(self, client: Client, partition: int, offset: int, managed: bool) -> None:
        topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(partition, offset)])]
        request = OffsetCommitRequest(GROUP, topics=topics)
        if managed:
            request.generation_id_or_member_epoch = client.generation
            request.member_id = client.member_id
            request.group_instance_id = client.instance
        self.world.coordinator.commit_offsets(9, request, self.waiter("commit", lambda _: None))

    @rule(delay_ms=st.sampled_from([0, 1, 1000, 3000, 9999, 30_000, 400_000]))
    def wait(self, delay_ms: int) -> None:
        self.world.time.advance(delay_ms)

    @rule()
    def delete(self) -> None:
        self.world.coordinator.delete_group(GROUP, self.waiter("delete", lambda _: None))

    @rule()
    def restart(self) -> None:
        self.incarnation += 1
        self.unanswered.clear()
        self.world.restart()

    @rule()
    def move_away_and_back(self) -> None:
        self.world.resign()
        assert not self.unanswered, "who waits must be told when the coordinator moves"
        self.world.elect()

    @precondition(lambda self: not self.world.partition().hold_commits)
    @rule()
    def hold_commits(self) -> None:
        self.world.partition().hold_commits = True

    @precondition(lambda self: self.world.partition().hold_commits)
    @rule()
    def release_commits(self) -> None:
        self.world.partition().hold_commits = False
        self.world.partition().commit()

    @invariant()
    def live_equals_replayed(self) -> None:
        twin = World(self.world.settings)
        twin.logs = self.world.logs
        twin.elect()
        live, replayed = self.world.machine(), twin.machine()
        assert dict(live.offsets.topics(GROUP)) == dict(replayed.offsets.topics(GROUP))
        assert live.groups.keys() == replayed.groups.keys()
        for group_id, group in live.groups.items():
            other = replayed.groups[group_id]
            if group.state in (GroupState.STABLE, GroupState.EMPTY):
                assert durable(group) == durable(other)
            else:
                assert group.generation_id >= other.generation_id

    @invariant()
    def counts_are_right(self) -> None:
        for group in self.world.machine().groups.values():
            members = group.members.values()
            assert group.awaiting_join_count == sum(member.is_awaiting_join for member in members)
            common = set.intersection(*(set(member.protocol_names()) for member in members)) if members else set()
            assert not members or group._protocols.common() == common
            assert group.static_members == {m.group_instance_id: m.member_id for m in members if m.is_static}
            assert (group.leader_id in group.members) if members else True
            assert group.pending_sync_members <= group.members.keys()
            assert not group.pending_join_members & group.members.keys()
            assert len(members) <= 6 or group.state is GroupState.PREPARING_REBALANCE

    def teardown(self) -> None:
        """Left alone, every group ends: all are answered, all members expire."""
        self.world.partition().hold_commits = False
        self.world.partition().commit()
        self.world.time.advance(LONG_MS)
        assert not self.unanswered
        for group in self.world.machine().groups.values():
            assert group.state is GroupState.EMPTY, group.state
            assert not group.members
            assert not group.pending_join_members


def durable(group: Any) -> Any:
    members = {
        member.member_id: (
            member.group_instance_id,
            member.client_id,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(group.protocol_name),
            member.assignment,
        )
        for member in group.members.values()
    }
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.state_timestamp_ms,
        group.subscribed_topics,
        members,
    )


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
