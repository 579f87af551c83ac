"""Replay: the effect of each record on image and delta, transactions, contradictions, snapshot = replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raft.kafka_directories import copied, raft_node
from tests.support.images import broker_config

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataError, MetadataImage, PartitionRegistration
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_frame,
)
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot import image_records
from ottla.model.ids import Uuid, uuid_from_str
from ottla.protocol.generated.client_quota_record import EntityData

T1, T2 = Uuid(b"1" * 16), Uuid(b"2" * 16)
DIRECTORY = Uuid(b"d" * 16)


def replayed(*records: Any, image: MetadataImage | None = None) -> tuple[MetadataImage, MetadataDelta]:
    image = image or MetadataImage()
    delta = MetadataDelta()
    replay_all(image, delta, records)
    return image, delta


def partition(topic: Uuid, index: int, *replicas: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY] * len(replicas),
    )


MADE = (TopicRecord("t", T1), partition(T1, 0, 1, 2), partition(T1, 1, 2, 1))


def test_topics() -> None:
    image, delta = replayed(*MADE, ConfigRecord(2, "t", "retention.ms", "5"))
    assert image.topics_by_name["t"] is image.topics_by_id[T1]
    assert image.partition("t", 1) == PartitionRegistration((2, 1), (2, 1), 2, 0, 0, (DIRECTORY, DIRECTORY))
    assert (delta.topics_created, delta.partitions) == ({T1}, {T1: {0, 1}})
    image, delta = replayed(RemoveTopicRecord(T1), image=image)
    assert (image.topics_by_id, image.topics_by_name, image.configs) == ({}, {}, {})
    assert set(delta.topics_deleted) == {T1}
    assert delta.configs == {(2, "t")}


def test_a_topic_made_and_removed_at_once_was_never_there() -> None:
    _, delta = replayed(*MADE, RemoveTopicRecord(T1))
    assert delta.empty


def test_partition_changes_raise_the_right_epochs() -> None:
    image, _ = replayed(*MADE)
    image, delta = replayed(PartitionChangeRecord(0, T1, isr=[1]), image=image)
    changed = image.partition("t", 0)
    assert changed is not None
    assert (changed.isr, changed.leader_epoch, changed.partition_epoch) == ((1,), 0, 1)
    image, _ = replayed(PartitionChangeRecord(0, T1, leader=1), image=image)
    changed = image.partition("t", 0)
    assert changed is not None
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (1, 1, 2)
    assert delta.partitions == {T1: {0}}


def test_every_field_of_a_partition_change() -> None:
    change = PartitionChangeRecord(
        0, T1, isr=[], leader=-1, replicas=[3, 4], removing_replicas=[1], adding_replicas=[3], leader_recovery_state=1
    )
    change.directories, change.eligible_leader_replicas, change.last_known_elr = [DIRECTORY], [4], [3]
    image, _ = replayed(*MADE, change)
    assert image.partition("t", 0) == PartitionRegistration(
        (3, 4), (), -1, 1, 1, (DIRECTORY,), 1, (4,), (3,), (3,), (1,)
    )


def test_clear_elr_of_one_topic_and_of_all() -> None:
    eligible = PartitionChangeRecord(0, T1, eligible_leader_replicas=[1], last_known_elr=[2])
    for name in ("t", ""):
        image, _ = replayed(*MADE, eligible)
        image, delta = replayed(ClearElrRecord(name), image=image)
        cleared = image.partition("t", 0)
        assert cleared is not None
        assert (cleared.elr, cleared.last_known_elr) == ((), ())
        assert delta.partitions == {T1: {0}}


def test_brokers() -> None:
    image, delta = replayed(RegisterBrokerRecord(1, broker_epoch=5, log_dirs=[DIRECTORY]))
    assert image.brokers[1].fenced
    assert delta.brokers == {1}
    replayed(BrokerRegistrationChangeRecord(1, 5, fenced=-1), image=image)
    assert image.brokers[1].active
    replayed(BrokerRegistrationChangeRecord(1, 5, in_controlled_shutdown=1), image=image)
    assert not image.brokers[1].fenced
    assert not image.brokers[1].active
    replayed(FenceBrokerRecord(1, 5), image=image)
    assert image.brokers[1].fenced
    replayed(UnfenceBrokerRecord(1, 5), image=image)
    assert not image.brokers[1].fenced
    replayed(BrokerRegistrationChangeRecord(1, 5, log_dirs=[T1], cordoned_log_dirs=[T1]), image=image)
    assert (image.brokers[1].directories, image.brokers[1].cordoned_directories) == ((T1,), (T1,))
    replayed(UnregisterBrokerRecord(1, 5), image=image)
    assert not image.brokers


def test_features_and_configs() -> None:
    image, delta = replayed(FeatureLevelRecord("metadata.version", 30), FeatureLevelRecord("group.version", 1))
    assert (image.metadata_version, delta.features) == (30, {"metadata.version", "group.version"})
    replayed(FeatureLevelRecord("group.version", 0), image=image)
    assert image.features == {"metadata.version": 30}
    replayed(ConfigRecord(4, "", "a", "1"), ConfigRecord(4, "1", "a", "2"), image=image)
    assert image.configs[4, ""] == {"a": "1"}
    assert image.configs[4, "1"] == {"a": "2"}
    replayed(ConfigRecord(4, "", "a", None), ConfigRecord(4, "", "b", None), image=image)
    assert (4, "") not in image.configs


def test_the_rest_is_kept() -> None:
    user = [EntityData("user", "alice"), EntityData("client-id", None)]
    scram = UserScramCredentialRecord("alice", 1, b"s", b"k", b"v", 4096)
    image, delta = replayed(
        ProducerIdsRecord(1, 5, 2000),
        ClientQuotaRecord(user, "producer_byte_rate", 10.0),
        AccessControlEntryRecord(T1, 2, "t", 3, "User:a", "*", 3, 3),
        scram,
        DelegationTokenRecord("User:a", "User:a", [], 1, 2, 3, "token"),
        NoOpRecord(),
    )
    assert image.next_producer_id == 2000
    assert image.client_quotas == {(("client-id", None), ("user", "alice")): {"producer_byte_rate": 10.0}}
    assert (set(image.acls), set(image.scram), set(image.delegation_tokens)) == ({T1}, {(1, "alice")}, {"token"})
    assert delta.producer_ids
    assert replayed(FeatureLevelRecord("metadata.version", 7), *image_records(image))[0].acls == image.acls
    whole = replayed(*image_records(image))[0]
    assert (whole.scram, whole.delegation_tokens, whole.client_quotas) == (
        image.scram,
        image.delegation_tokens,
        image.client_quotas,
    )
    image, _ = replayed(
        ClientQuotaRecord(user, "producer_byte_rate", 0.0, remove=True),
        RemoveAccessControlEntryRecord(T1),
        RemoveUserScramCredentialRecord("alice", 1),
        RemoveDelegationTokenRecord("token"),
        image=image,
    )
    assert (image.client_quotas, image.acls, image.scram, image.delegation_tokens) == ({}, {}, {}, {})


@pytest.mark.parametrize(
    "records",
    [
        [TopicRecord("t", T1), TopicRecord("t", T2)],
        [RemoveTopicRecord(T1)],
        [partition(T1, 0, 1)],
        [TopicRecord("t", T1), PartitionChangeRecord(0, T1)],
        [UnregisterBrokerRecord(1, 5)],
        [RegisterBrokerRecord(1, broker_epoch=5), FenceBrokerRecord(1, 6)],
        [RemoveAccessControlEntryRecord(T1)],
        [ClearElrRecord("t")],
        [FeatureLevelRecord("metadata.version", 99)],
        [FeatureLevelRecord("no.such", 1)],
        [EndTransactionRecord()],
        [AbortTransactionRecord()],
        [BeginTransactionRecord("a"), BeginTransactionRecord("b")],
    ],
)
def test_contradictions_stop_everything(records: list[Any]) -> None:
    with pytest.raises(MetadataError):
        replayed(*records)


def test_transactions_apply_together_or_not_at_all() -> None:
    image, delta = replayed(BeginTransactionRecord("b"), *MADE)
    assert not image.topics_by_id
    assert delta.empty
    ended, delta = replayed(EndTransactionRecord(), image=image.copy())
    assert set(ended.topics_by_name) == {"t"}
    assert delta.topics_created == {T1}
    aborted, delta = replayed(AbortTransactionRecord("no"), *MADE, image=image.copy())
    assert set(aborted.topics_by_name) == {"t"}, "what comes after the abort counts"
    dropped, delta = replayed(AbortTransactionRecord("no"), image=image)
    assert dropped == MetadataImage()
    assert delta.empty


def test_the_publisher_tells_of_whole_transactions_only() -> None:
    deltas: list[tuple[set[Uuid], bool]] = []
    publisher = MetadataPublisher()
    publisher.subscribe(lambda delta, image: deltas.append((set(delta.topics_created), "t" in image.topics_by_name)))
    publisher.committed([BeginTransactionRecord("b"), *MADE], 3, 1)
    publisher.committed([NoOpRecord()], 4, 1)
    assert deltas == []
    publisher.committed([EndTransactionRecord()], 5, 1)
    assert deltas == [({T1}, True)]
    publisher.committed([NoOpRecord()], 6, 1)
    assert (len(deltas), publisher.offset) == (1, 6)
    late: list[bool] = []
    publisher.subscribe(lambda delta, _image: late.append(delta.reloaded))
    assert late == [True]


def test_a_copy_lives_its_own_life() -> None:
    image, _ = replayed(*MADE, ConfigRecord(2, "t", "a", "1"), RegisterBrokerRecord(1, broker_epoch=5))
    before = image.copy()
    replayed(PartitionChangeRecord(0, T1, leader=2), ConfigRecord(2, "t", "a", "2"), TopicRecord("u", T2), image=image)
    assert before != image
    assert before.topic_config("t") == {"a": "1"}
    assert before.topics_by_name["t"] is before.topics_by_id[T1]
    assert set(before.topics_by_name) == {"t"}


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_images_of_logs_that_kafka_wrote(kind: str, tmp_path: Path) -> None:
    node = raft_node(kind, copied(kind, tmp_path))
    snapshot = node.start()
    whole, _ = replayed(*(decode_frame(frame) for batch in node.committed(0) for frame in batch.frames))
    assert whole.metadata_version == 30
    assert whole.brokers[1].fenced
    if kind == "dynamic":
        assert snapshot is not None
        assert node.snapshots.latest is not None
        from_snapshot, _ = replayed(*map(decode_frame, snapshot.frames))
        rest = node.committed(node.snapshots.latest.end_offset)
        replayed(*(decode_frame(frame) for batch in rest for frame in batch.frames), image=from_snapshot)
        assert from_snapshot == whole, "Kafka's snapshot and the log after it are the whole log"
        assert whole.topics_by_name["t2"].id == uuid_from_str("VErBM-s3SUeq2wV46IckCw")
        assert len(whole.topics_by_name["t2"].partitions) == 4
        assert whole.topic_config("t2") == {"cleanup.policy": "compact"}
        assert broker_config(whole, 1) == {"min.insync.replicas": "1", "log.retention.ms": "77777"}
    else:
        (topic,) = whole.topics_by_name.values()
        assert (topic.name, topic.id) == ("t1", uuid_from_str("iWb0hcd0T1u7S3FQ9Du6ew"))
        assert {p.elr for p in topic.partitions.values()} == {(1,)}
    assert replayed(*image_records(whole))[0] == whole


# ------------------------------------------------------------------------------------------------------ snapshot = replay

_TOPICS = [Uuid(bytes([i]) * 16) for i in range(1, 5)]
_replicas = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)
_maybe_replicas = st.none() | st.lists(st.integers(1, 4), max_size=3, unique=True)

_records = st.one_of(
    st.builds(lambda i: TopicRecord(f"topic-{i}", _TOPICS[i]), st.integers(0, 3)),
    st.builds(lambda i: RemoveTopicRecord(_TOPICS[i]), st.integers(0, 3)),
    st.builds(lambda i, n, r: partition(_TOPICS[i], n, *r), st.integers(0, 3), st.integers(0, 2), _replicas),
    st.builds(
        lambda i, n, isr, leader, elr, last_known_elr: PartitionChangeRecord(
            n, _TOPICS[i], isr=isr, leader=leader, eligible_leader_replicas=elr, last_known_elr=last_known_elr
        ),
        st.integers(0, 3),
        st.integers(0, 2),
        _maybe_replicas,
        st.integers(-2, 4),
        _maybe_replicas,
        _maybe_replicas,
    ),
    st.builds(lambda b, e: RegisterBrokerRecord(b, broker_epoch=e, rack="r"), st.integers(1, 3), st.integers(0, 2)),
    st.builds(
        lambda b, e, f, s: BrokerRegistrationChangeRecord(b, e, fenced=f, in_controlled_shutdown=s),
        st.integers(1, 3),
        st.integers(0, 2),
        st.integers(-1, 1),
        st.integers(0, 1),
    ),
    st.builds(
        ConfigRecord,
        st.sampled_from([2, 4]),
        st.sampled_from(["", "topic-0"]),
        st.sampled_from("ab"),
        st.none() | st.just("1"),
    ),
    st.builds(lambda n: ProducerIdsRecord(1, 1, n * 1000), st.integers(1, 5)),
    st.builds(
        lambda u, k, r: ClientQuotaRecord([EntityData("user", u)], k, 5.0, r),
        st.none() | st.just("alice"),
        st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
        st.booleans(),
    ),
    st.builds(lambda level: FeatureLevelRecord("group.version", level), st.integers(0, 1)),
)


@given(st.lists(_records, max_size=40))
@settings(max_examples=150)
def test_a_snapshot_is_its_replay(records: list[Any]) -> None:
    image, _ = replayed(FeatureLevelRecord("metadata.version", 30))
    for record in records:
        try:
            replayed(record, image=image)
        except MetadataError:
            continue
    assert replayed(*image_records(image))[0] == image
