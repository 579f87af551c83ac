"""Streams groups under random joins, leaves, deaths, changes of topics and settings, and restarts by replay.

Invariants: no active task is on two members, neither in the coordinator nor among the clients. No process has a task
twice. A target gives every task of a ready topology to exactly one member. The log alone, replayed into a new machine,
gives the same group. `test_planted_bugs.py` shows that a coordinator with a bug does not pass.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.streams.group import StreamsGroup, StreamsGroupState
from ottla.coordinator.groups.streams.members import StreamsMember
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.model.errors import ErrorCode, KafkaError
from tests.coordinator.streams_topologies import beating, task_ids, word_count
from tests.coordinator.virtual_world import World

GROUP = "g"
LONG_MS = 3_600_000
TOPICS = ("lines", "again", "log")
MUST_START_OVER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
Owned = dict[str, dict[str, list[int]]]


class Thread:
    """A stream thread like a real client: it has its assigned tasks until it has reported that it gave them up."""

    def __init__(self, number: int, process: str) -> None:
        self.name = f"t{number}"
        self.process = process
        self.start_over()

    def start_over(self) -> None:
        self.epoch = 0
        self.owned: Owned = {"active": {}, "standby": {}}
        self.reported: Owned | None = None
        """The assignment of the last answer, which it follows with its next request."""


class StreamsGroups(RuleBasedStateMachine):
    threads: Bundle[Thread] = Bundle("threads")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            GroupCoordinatorSettings(
                group_streams_initial_rebalance_delay_ms=0,
                group_streams_assignment_interval_ms=500,
                group_streams_max_size=6,
                offsets_topic_num_partitions=1,
            )
        )
        self.everybody: list[Thread] = []
        for name in TOPICS:
            self.world.set_topic(name, 3)

    # Threads

    @rule(target=threads, process=st.sampled_from(["p", "q", "r"]))
    def start(self, process: str) -> Thread:
        thread = Thread(len(self.everybody), process)
        self.everybody.append(thread)
        return thread

    @rule(thread=threads, follows=st.booleans(), shutdown=st.sampled_from([False, False, False, True]))
    def beat(self, thread: Thread, follows: bool, shutdown: bool) -> None:
        if follows and thread.reported is not None:
            thread.owned, thread.reported = thread.reported, None
        joins = thread.epoch == 0
        request = beating(GROUP, thread.name, thread.epoch, word_count(*TOPICS) if joins else None)
        request.shutdown_application = shutdown
        if joins:
            request.process_id = thread.process
        elif follows:
            request.active_tasks = task_ids(thread.owned["active"])
            request.standby_tasks = task_ids(thread.owned["standby"])
            request.warmup_tasks = []

        def on_answer(answer: Any) -> None:
            if isinstance(answer, KafkaError):
                if answer.code in MUST_START_OVER:
                    thread.start_over()
                return
            response = answer.response
            thread.epoch = response.member_epoch
            if response.active_tasks is not None:
                thread.reported = {
                    "active": {tasks.subtopology_id: tasks.partitions for tasks in response.active_tasks},
                    "standby": {tasks.subtopology_id: tasks.partitions for tasks in response.standby_tasks},
                }

        self.world.coordinator.streams_heartbeat(Caller(thread.name, "/host", 0), request, on_answer)

    @rule(thread=threads)
    def leave(self, thread: Thread) -> None:
        request = beating(GROUP, thread.name, -1)
        self.world.coordinator.streams_heartbeat(Caller(thread.name, "/host", 0), request, lambda _: None)
        thread.start_over()

    # The world

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(0, 5))
    def spoil_topic(self, name: str, partitions: int) -> None:
        """One that does not fit the others, or none."""
        if partitions:
            self.world.set_topic(name, partitions)
        elif name in self.world.topics:
            self.world.drop_topic(name)

    @rule(partitions=st.integers(1, 4))
    def fit_topics(self, partitions: int) -> None:
        """What random steps alone seldom reach: topics that fit the topology."""
        for name in TOPICS:
            if name in self.world.topics:
                self.world.drop_topic(name)
            self.world.set_topic(name, partitions)

    @rule()
    def fit_topics_and_settle(self) -> None:
        self.fit_topics(3)
        self.everybody_beats(3)

    @rule(replicas=st.integers(0, 3))
    def set_standby_replicas(self, replicas: int) -> None:
        self.world.configure_group(GROUP, streams_num_standby_replicas=str(replicas))

    @rule(delay_ms=st.sampled_from([0, 1, 500, 10_001, 29_000, 46_000]))
    def wait(self, delay_ms: int) -> None:
        self.world.time.advance(delay_ms)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule(order=st.lists(st.integers(0, 5), min_size=4, max_size=16))
    def some_beat(self, order: list[int]) -> None:
        """Some hurry and some are slow: who is asked to give up may be overtaken by who waits for it."""
        for number in order:
            if number < len(self.everybody):
                self.beat(self.everybody[number], follows=True, shutdown=False)

    @rule(rounds=st.integers(1, 4))
    def everybody_beats(self, rounds: int) -> None:
        """What random steps alone seldom reach: a group that has settled."""
        for _ in range(rounds):
            for thread in self.everybody:
                self.beat(thread, follows=True, shutdown=False)
            self.world.time.advance(500)

    # What always holds

    def group(self) -> StreamsGroup | None:
        group = self.world.machine().groups.get(GROUP)
        return group if isinstance(group, StreamsGroup) else None

    def members(self) -> list[StreamsMember]:
        group = self.group()
        return list(group.members.values()) if group is not None else []

    @invariant()
    def no_active_task_is_on_two_members(self) -> None:
        group = self.group()
        owners: dict[tuple[str, int], str] = {}
        for member in self.members():
            for tasks in (member.assigned, member.pending_revocation):
                for subtopology, partitions in tasks.active.items():
                    for index in partitions:
                        assert owners.setdefault((subtopology, index), member.member_id) == member.member_id
                        assert group is not None
                        assert group.owners.active[subtopology, index] == member.process_id
        assert group is None or group.owners.active.keys() == owners.keys()

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        has: Counter[tuple[str, str, int]] = Counter()
        for member in self.members():
            for tasks in (member.assigned, member.pending_revocation):
                for kind in (tasks.active, tasks.standby, tasks.warmup):
                    has.update(
                        (member.process_id, subtopology_id, index)
                        for subtopology_id in kind
                        for index in kind[subtopology_id]
                    )
        assert not [task for task, times in has.items() if times > 1]

    @invariant()
    def no_two_threads_have_the_same_active_task(self) -> None:
        """Of those that the coordinator has as members at their epoch; others do not know yet that they are out."""
        group = self.group()
        owners: dict[tuple[str, int], str] = {}
        for thread in self.everybody:
            member = group.members.get(thread.name) if group is not None else None
            if member is None or thread.epoch not in (member.member_epoch, member.previous_member_epoch):
                continue
            for subtopology, partitions in thread.owned["active"].items():
                for index in partitions:
                    assert owners.setdefault((subtopology, index), thread.name) == thread.name, "two owners"

    @invariant()
    def targets_are_complete_and_disjoint(self) -> None:
        group = self.group()
        if group is None:
            return
        assert group.targets.keys() <= group.members.keys()
        owners = Counter(
            (subtopology_id, index)
            for target in group.targets.values()
            for subtopology_id in target.active
            for index in target.active[subtopology_id]
        )
        assert not [task for task, times in owners.items() if times > 1]
        settled = group.state in (StreamsGroupState.STABLE, StreamsGroupState.RECONCILING)
        if settled and group.configured is not None and group.configured.is_ready:
            tasks = {
                (subtopology_id, i)
                for subtopology_id, sub in group.configured.subtopologies.items()
                for i in range(sub.tasks)
            }
            assert owners.keys() == tasks
            shares = [sum(map(len, target.active.values())) for target in group.targets.values()]
            assert max(shares) <= -(-len(tasks) // len(group.members)) + 1

    @invariant()
    def live_equals_replayed(self) -> None:
        twin = World(self.world.settings)
        twin.logs = self.world.logs
        twin.elect()
        live, replayed = self.world.machine().groups, twin.machine().groups
        assert live.keys() == replayed.keys()
        for group_id, group in live.items():
            if isinstance(group, StreamsGroup):
                assert durable(group) == durable(replayed[group_id])

    def teardown(self) -> None:
        """Those who live settle, with topics that fit; left alone, the group ends."""
        self.fit_topics(2)
        settled = self.everybody[:5]
        for _ in range(24):
            for thread in settled:
                self.beat(thread, follows=True, shutdown=False)
            self.world.time.advance(5_000)
        group = self.group()
        if group is not None and group.members.keys() <= {thread.name for thread in settled}:
            assert group.state in (StreamsGroupState.STABLE, StreamsGroupState.EMPTY), group.state
        self.world.restart()
        self.world.time.advance(LONG_MS)
        group = self.group()
        assert group is None or (group.is_empty and group.targets == {} and group.shutdown_requested_by is None)


def durable(group: StreamsGroup) -> Any:
    return (
        group.group_epoch,
        group.metadata_hash,
        group.validated_topology_epoch,
        group.assignment_configs,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.topology,
        group.members,
        group.targets,
        group.owners.active,
        group.owners.standby,
        group.owners.warmup,
    )


TestStreamsGroups = StreamsGroups.TestCase
TestStreamsGroups.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
