"""Places that seeds execute without an effect that a checker sees: the schedules of some drawn bugs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.connection import Connection
from ottla.broker.handlers.list_offsets import LATEST, _offset
from ottla.broker.handlers.txn_offset_commit import _Commit
from ottla.broker.share.partition import SharePartition
from ottla.broker.transactions.transaction_verification import TransactionSupportedOperation, Verifier
from ottla.coordinator.decisions import CoordinatorAnswer
from ottla.coordinator.groups.consumer.members import ConsumerMember
from ottla.coordinator.groups.consumer.reconciliation import ConsumerReconciliation
from ottla.coordinator.groups.consumer.target import ConsumerTarget
from ottla.coordinator.runtime import Shard, ShardState
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionRegistration
from ottla.metadata.records import RegisterControllerRecord
from ottla.metadata.replay import replay_all
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.list_offsets_request import ListOffsetsRequest
from ottla.protocol.generated.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.raft.roles.leader import Leader
from ottla.raft.voters import ReplicaKey

ID = Uuid(bytes(15) + b"\1")


def test_the_coordinator_of_a_transaction_may_be_node_zero() -> None:
    """The nodes of the simulator have the numbers from 1 on."""
    registration = PartitionRegistration((0,), (0,), 0, 1, 1)
    broker = SimpleNamespace(
        transactions=SimpleNamespace(partition_for=lambda _id: 0),
        image=SimpleNamespace(partition=lambda _topic, _index: registration),
    )
    verifier = Verifier(cast("Any", broker), "id", (1, 0), frozenset(), TransactionSupportedOperation.DEFAULT_ERROR)
    assert verifier._coordinator() == 0


def test_a_connection_that_is_gone_calls_back_once() -> None:
    """A large request that ends behind its connection ends the connection a second time."""
    connection = Connection(
        cast("Any", None), cast("Any", None), client_host="10.0.0.1", client_port=1, listener="PLAINTEXT"
    )
    calls: list[int] = []
    connection.when_closed = lambda: calls.append(1)
    connection.on_closed()
    connection.on_closed()
    assert calls == [1]


def test_a_replica_that_fetches_from_the_end_has_caught_up_now() -> None:
    """DescribeQuorum shows this time; no promise is about it."""
    leader = Leader(1, ReplicaKey(1, ID), 0)
    assert leader.fetched(ReplicaKey(2, ID), 10, 10, 5.0, 1_000).last_caught_up_ms == 1_000
    assert leader.fetched(ReplicaKey(2, ID), 10, 12, 6.0, 2_000).last_caught_up_ms == 1_000


def test_a_transaction_commits_nothing_for_a_partition_that_does_not_exist() -> None:
    """The clients of the simulator name only partitions that exist."""
    image = SimpleNamespace(topics_by_name={"t": SimpleNamespace(id=ID, partitions={0: None})})
    request = TxnOffsetCommitRequest(topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(7, 1)])])
    commit = _Commit(cast("Any", SimpleNamespace(broker=SimpleNamespace(image=image))), request)
    assert commit._existing() == []
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in commit._refused] == [
        ("t", [7])
    ]


def test_a_consumer_that_asks_for_the_latest_offset_gets_the_end_of_what_is_committed() -> None:
    """The clients of the simulator ask for the earliest offset only."""
    log = SimpleNamespace(log_end_offset=9)
    partition = SimpleNamespace(log=log, high_watermark_lags=False, leader_epoch=1, readable_end=lambda _level: 5)
    context = cast("Any", SimpleNamespace(version=8))
    of_consumer, of_broker = ListOffsetsRequest(replica_id=-1), ListOffsetsRequest(replica_id=3)
    assert _offset(context, cast("Any", partition), LATEST, of_consumer, None) == (-1, 5, 1)
    assert _offset(context, cast("Any", partition), LATEST, of_broker, None) == (-1, 9, 1)


def test_share_fetches_that_wait_are_woken() -> None:
    """Without the call the fetch ends at its maximum wait, and no promise is about this time."""
    partition = object.__new__(SharePartition)
    calls: list[int] = []
    partition._watchers = {"a": lambda: calls.append(1), "b": lambda: calls.append(2)}
    partition._wake()
    assert calls == [1, 2]


def test_the_registration_of_a_controller_is_a_change_of_the_metadata() -> None:
    """Else nobody hears of an image that has only this change; the next change brings both."""
    image, delta = MetadataImage(), MetadataDelta()
    replay_all(image, delta, [RegisterControllerRecord(controller_id=3)])
    assert sorted(image.controllers) == [3]
    assert not delta.empty


def test_clients_that_wait_for_a_shard_that_closes_have_an_answer() -> None:
    """The clients of the simulator ask again after their timeout, and no promise is about this time."""
    shard: Any = object.__new__(Shard)
    codes: list[ErrorCode] = []
    cancelled: list[str] = []
    timer = SimpleNamespace(cancel=lambda: cancelled.append("timer"))

    def waiter(error: KafkaError) -> None:
        codes.append(error.code)

    shard.state = ShardState.ACTIVE
    shard.deadlines = SimpleNamespace(cancel_all=lambda: cancelled.append("deadlines"))
    shard._parked = {1: ([CoordinatorAnswer(waiter, None)], timer)}
    shard.machine = SimpleNamespace(on_unloaded=lambda: Decision([CoordinatorAnswer(waiter, None)], []))
    shard.close()
    assert codes == [ErrorCode.NOT_COORDINATOR] * 2
    assert cancelled == ["deadlines", "timer"]


def test_a_member_has_a_new_partition_since_the_epoch_of_the_target() -> None:
    """Only a commit with an older epoch of the same member is judged by this epoch; no member sends one here."""
    target = ConsumerTarget(5, {ID: frozenset({0})})
    reconciliation = ConsumerReconciliation(ConsumerMember("m"), target, None, frozenset({ID}), lambda *_: -1)
    member = reconciliation.step(subscription_changed=False)
    assert (member.member_epoch, member.assignment_epoch(ID, 0)) == (5, 5)
