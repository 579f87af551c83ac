"""Consumer groups under random joins, leaves, deaths, changes of topics and protocols, and restarts by replay.

Invariants: no partition has two owners, neither in the coordinator nor among the clients. A member subscribes to all
that it owns. The log alone, replayed into a new machine, gives the same group.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer import embedded
from ottla.coordinator.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.virtual_world import World

GROUP = "g"
LONG_MS = 3_600_000
TOPICS = ("ta", "tb", "tc")
MUST_START_OVER = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
)


class Client:
    """A consumer like a real client: it owns its assigned partitions until it has reported that it gave them up."""

    def __init__(self, number: int, instance: str | None, *, classic: bool) -> None:
        self.name = f"c{number}"
        self.instance = instance
        self.classic = classic
        self.member_id = "" if classic else self.name
        self.epoch = 0
        self.owned: dict[Uuid, set[int]] = {}
        self.reported: dict[Uuid, set[int]] | None = None
        """The assignment of the last answer, which it follows with its next request."""

    def start_over(self) -> None:
        self.epoch = 0
        self.owned, self.reported = {}, None
        if self.classic:
            self.member_id = ""


class ConsumerGroups(RuleBasedStateMachine):
    clients: Bundle[Client] = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            GroupCoordinatorSettings(
                group_initial_rebalance_delay_ms=0,
                group_consumer_assignment_interval_ms=500,
                group_consumer_max_size=6,
                offsets_topic_num_partitions=1,
            )
        )
        self.everybody: list[Client] = []
        self.world.set_topic("ta", 3)

    # Clients

    @rule(target=clients, instance=st.sampled_from([None, None, None, "one", "two"]), classic=st.booleans())
    def start(self, instance: str | None, classic: bool) -> Client:
        client = Client(len(self.everybody), None if classic else instance, classic=classic)
        self.everybody.append(client)
        return client

    @rule(
        client=clients,
        topics=st.none() | st.sets(st.sampled_from(TOPICS)).map(sorted),
        regex=st.sampled_from([None, None, None, "t[ab]", ""]),
        assignor=st.sampled_from([None, "uniform", "range"]),
        follows=st.booleans(),
        full=st.booleans(),
    )
    def beat(
        self,
        client: Client,
        topics: list[str] | None,
        regex: str | None,
        assignor: str | None,
        follows: bool,
        full: bool,
    ) -> None:
        if client.classic:
            self.beat_classic(client)
            return
        if follows and client.reported is not None:
            client.owned, client.reported = client.reported, None
        joins = client.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            GROUP, client.member_id, client.epoch, client.instance, None, 30_000 if joins or full else -1
        )
        request.subscribed_topic_names = ["ta"] if joins and topics is None and regex is None else topics
        request.subscribed_topic_regex = regex
        request.server_assignor = assignor
        says = joins or full or follows
        parts = [TopicPartitions(topic_id, sorted(indexes)) for topic_id, indexes in client.owned.items()]
        request.topic_partitions = parts if says else None

        def on_answer(response: Any) -> None:
            if isinstance(response, KafkaError):
                if response.code in MUST_START_OVER:
                    client.start_over()
                return
            client.epoch = response.member_epoch
            if response.assignment is not None:
                client.reported = {
                    topic.topic_id: set(topic.partitions) for topic in response.assignment.topic_partitions
                }

        self.world.coordinator.consumer_heartbeat(Caller(client.name, "/host", 1), request, on_answer)

    @rule(client=clients, for_a_while=st.booleans())
    def leave(self, client: Client, for_a_while: bool) -> None:
        if client.classic:
            identity = MemberIdentity(client.member_id)
            self.world.coordinator.leave(LeaveGroupRequest(GROUP, members=[identity]), lambda _: None)
        else:
            epoch = -2 if for_a_while and client.instance is not None else -1
            request = ConsumerGroupHeartbeatRequest(GROUP, client.member_id, epoch, client.instance, None)
            self.world.coordinator.consumer_heartbeat(Caller(client.name, "/host", 1), request, lambda _: None)
        client.start_over()

    # Classic clients: join, sync and beat; eager, they have nothing while they rebalance

    def beat_classic(self, client: Client) -> None:
        def on_answer(response: Any) -> None:
            if isinstance(response, KafkaError):
                return
            if response.error_code in MUST_START_OVER:
                client.start_over()
                self.join(client)
            elif response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                client.owned = {}
                self.join(client)

        if not client.member_id:
            self.join(client)
            return
        request = HeartbeatRequest(GROUP, client.epoch, client.member_id)
        self.world.coordinator.heartbeat(request, on_answer)

    def join(self, client: Client) -> None:
        topics = {topic.id: topic.name for topic in self.world.topics.values()}
        owned = [TopicPartition(topics[i], sorted(parts)) for i, parts in client.owned.items() if i in topics]
        metadata = b"\x00\x01" + ConsumerProtocolSubscription(["ta", "tb"], None, owned).to_bytes(1)

        def on_answer(response: Any) -> None:
            if isinstance(response, KafkaError) or response.error_code in MUST_START_OVER:
                client.start_over()
            elif response.error_code == ErrorCode.NONE:
                client.member_id, client.epoch = response.member_id, response.generation_id
                self.sync(client, [member.member_id for member in response.members])

        request = JoinGroupRequest(
            GROUP, 10_000, 30_000, client.member_id, None, "consumer", [JoinGroupRequestProtocol("range", metadata)]
        )
        client.owned = {}
        self.world.coordinator.join(Caller(client.name, "/host", 3), request, on_answer)

    def sync(self, client: Client, members: list[str]) -> None:
        plan: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in members}
        for topic in self.world.topics.values():
            if topic.name in ("ta", "tb"):
                for index in topic.partitions if members else ():
                    plan[members[index % len(members)]].setdefault(topic.id, set()).add(index)
        image = self.world.machine()._context.image
        assignments = [
            SyncGroupRequestAssignment(
                assignee, embedded.write_assignment({i: frozenset(p) for i, p in parts.items()}, 1, image)
            )
            for assignee, parts in plan.items()
        ]

        def on_answer(response: Any) -> None:
            if isinstance(response, KafkaError) or response.error_code:
                return
            client.owned = {}
            if response.assignment:
                read = embedded.read_assignment(bytes(response.assignment))
                assigned = embedded.assigned_partitions(read, self.world.machine()._context.image)
                client.owned = {topic_id: set(parts) for topic_id, parts in assigned.items()}

        request = SyncGroupRequest(GROUP, client.epoch, client.member_id, None, "consumer", "range", assignments)
        self.world.coordinator.sync(request, on_answer)

    # The world

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def set_topic(self, name: str, partitions: int) -> None:
        self.world.set_topic(name, partitions)

    @rule(name=st.sampled_from(TOPICS))
    def drop_topic(self, name: str) -> None:
        if name in self.world.topics:
            self.world.drop_topic(name)

    @rule(delay_ms=st.sampled_from([0, 1, 500, 10_001, 29_000, 46_000]))
    def wait(self, delay_ms: int) -> None:
        self.world.time.advance(delay_ms)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule(rounds=st.integers(1, 4))
    def everybody_beats(self, rounds: int) -> None:
        """What random steps alone seldom reach: a group that has settled."""
        for _ in range(rounds):
            for client in self.everybody:
                self.beat(client, None, None, None, follows=True, full=False)
            self.world.time.advance(500)

    # What always holds

    def group(self) -> ConsumerGroup | None:
        group = self.world.machine().groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    @invariant()
    def the_coordinator_gives_no_partition_twice(self) -> None:
        group = self.group()
        owners: dict[tuple[Uuid, int], str] = {}
        for member in group.members.values() if group is not None else ():
            for partitions in (member.assigned, member.pending_revocation):
                for topic_id, indexes in partitions.items():
                    for index in indexes:
                        assert owners.setdefault((topic_id, index), member.member_id) == member.member_id
                        assert group is not None
                        assert group.owner_epoch(topic_id, index) == member.member_epoch

    @invariant()
    def no_two_clients_have_the_same_partition(self) -> None:
        """Of those that the coordinator has as members at their epoch; others do not know yet that they are out."""
        group = self.group()
        owners: dict[tuple[Uuid, int], str] = {}
        for client in self.everybody:
            member = group.members.get(client.member_id) if group is not None else None
            if member is None or client.epoch not in (member.member_epoch, member.previous_member_epoch):
                continue
            for topic_id, indexes in client.owned.items():
                for index in indexes:
                    assert owners.setdefault((topic_id, index), client.name) == client.name, "two owners"

    @invariant()
    def targets_are_disjoint_and_of_members(self) -> None:
        group = self.group()
        seen: set[tuple[Uuid, int]] = set()
        for member_id, target in (group.targets if group is not None else {}).items():
            assert group is not None
            assert member_id in group.members
            for topic_id, indexes in target.items():
                for index in indexes:
                    assert (topic_id, index) not in seen
                    seen.add((topic_id, index))

    @invariant()
    def live_equals_replayed(self) -> None:
        twin = World(self.world.settings)
        twin.logs = self.world.logs
        twin.elect()
        live, replayed = self.world.machine().groups, twin.machine().groups
        assert live.keys() == replayed.keys()
        for group_id, group in live.items():
            assert type(group) is type(replayed[group_id])
            if isinstance(group, ConsumerGroup):
                assert durable(group) == durable(replayed[group_id])

    def teardown(self) -> None:
        """Those who live settle; left alone, every group ends."""
        settled = [client for client in self.everybody[:5] if not client.classic]
        # Long enough for a member that is gone to be missed (45 s), and for the others to settle after that.
        for _ in range(24):
            for client in settled:
                self.beat(client, None, None, None, follows=True, full=False)
            self.world.time.advance(5_000)
        group = self.group()
        if group is not None and group.members.keys() <= {client.member_id for client in settled}:
            assert group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY), group.state
        self.world.restart()
        self.world.time.advance(LONG_MS)
        for abandoned in self.world.machine().groups.values():
            assert abandoned.is_empty, (abandoned.kind, abandoned.state_name)
            assert isinstance(abandoned, ClassicGroup) or abandoned.targets == {}


def durable(group: ConsumerGroup) -> Any:
    return (
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.members,
        group.static_members,
        group.targets,
        group.subscriptions.by_name,
        group.subscriptions.by_regex,
        group.subscriptions.regexes,
        group.subscriptions.resolved,
        group._owners,
        group.classic_member_count,
        +group._assignors,
        +group._classic_protocols,
    )


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
