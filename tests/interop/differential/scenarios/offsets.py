"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, and the log directories."""

from __future__ import annotations

from ottla.protocol.generated.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.generated.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.interop.differential.batches import T0, batch, produce
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import scenario


@scenario(ListOffsetsRequest)
def list_offsets(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 2)

    def ask(
        timestamp: int, *, partition: int = 0, name: str = topic, epoch: int = -1, isolation: int = 0, replica: int = -1
    ) -> None:
        wanted = ListOffsetsPartition(partition, epoch, timestamp)
        pair.send(ListOffsetsRequest(replica, isolation, [ListOffsetsTopic(name, [wanted])], 1000), version)

    specials = (-1, -2, -3, -4, -5, -6, -7)
    for timestamp in (*specials, T0):
        ask(timestamp)
    for i, (at, codec) in enumerate(((T0, 0), (T0 + 5000, 1), (T0 + 2000, 3), (T0 + 5000, 0))):
        pair.send(produce(topic, batch(b"a%d" % i, b"b", b"c", at=at, compression=codec), version=9), 9)
    times = (
        0,
        T0 - 1,
        T0,
        T0 + 1,
        T0 + 10,
        T0 + 20,
        T0 + 21,
        T0 + 2005,
        T0 + 4999,
        T0 + 5000,
        T0 + 5010,
        T0 + 5020,
        T0 + 5021,
        2**62,
    )
    for timestamp in (*specials, *times):
        ask(timestamp)
        ask(timestamp, isolation=1)
    pair.send(DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 2)])], 5_000), 2)
    for timestamp in (-1, -2, -3, -4, T0, T0 + 10, T0 + 20):
        ask(timestamp)
    for epoch in (0, 1, -2):
        ask(-1, epoch=epoch)
    ask(-1, partition=9)
    ask(-1, partition=-1)
    ask(-1, name=pair.name("missing"))
    ask(-1, name="a b")
    ask(-1, isolation=9)
    for replica in (1, -2, 7):
        ask(-1, replica=replica)
    twice = [ListOffsetsPartition(0, -1, -1), ListOffsetsPartition(0, -1, -2), ListOffsetsPartition(1, -1, -2)]
    pair.send(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, twice)], 1000), version)
    pair.send(ListOffsetsRequest(-1, 0, [], 1000), version)


@scenario(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"))

    def ask(epoch: int, current: int = -1, partition: int = 0, name: str = topic, replica: int = -1) -> None:
        wanted = OffsetForLeaderPartition(partition, current, epoch)
        pair.send(OffsetForLeaderEpochRequest(replica, [OffsetForLeaderTopic(name, [wanted])]), version)

    for epoch in (0, 1, -1, -2):
        ask(epoch)
    pair.send(produce(topic, batch(b"a", b"b"), version=9), 9)
    for epoch in (0, 1, 5, -1, -2):
        ask(epoch)
    for current in (0, 1, -2):
        ask(0, current)
    ask(0, partition=4)
    ask(0, name=pair.name("missing"))
    ask(0, name="a b")
    ask(0, replica=-2)
    ask(0, replica=3)
    pair.send(OffsetForLeaderEpochRequest(-1, []), version)


@scenario(ListOffsetsRequest, versions=range(2, 12, 3))
def list_offsets_odd_topics(pair: Pair, version: int) -> None:
    """A topic twice, a topic without partitions, and an isolation level that there is not."""
    topic = pair.create(pair.name("t"), 2)
    zero, one, gone = (ListOffsetsPartition(index, -1, -1) for index in (0, 1, 9))
    for isolation in (0, 7):
        for wanted in ([[zero], [one]], [[], [one, one]], [[]], [[zero, gone], [zero]], [[gone], [], [gone]]):
            topics = [ListOffsetsTopic(topic, partitions) for partitions in wanted]
            request = ListOffsetsRequest(-1, isolation, [*topics, ListOffsetsTopic("a b", [])])
            request.timeout_ms = 1000 if version >= 10 else 0
            pair.send(request, version)


@scenario(DeleteRecordsRequest)
def delete_records(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 2)
    compacted = pair.create(pair.name("compact"), 1, cleanup_policy="compact")
    both = pair.create(pair.name("both"), 1, cleanup_policy="compact,delete")
    neither = pair.create(pair.name("neither"), 1, cleanup_policy="")
    for each in (topic, compacted, both, neither):
        for _ in range(3):
            pair.send(produce(each, batch(b"a", b"b"), version=9), 9)

    def delete(offset: int, partition: int = 0, name: str = topic) -> None:
        wanted = DeleteRecordsPartition(partition, offset)
        pair.send(DeleteRecordsRequest([DeleteRecordsTopic(name, [wanted])], 5_000), version)

    for offset in (0, 1, 3, 2, 7, -2, -1, 6, 100):
        delete(offset)
    delete(0, partition=1)
    delete(-1, partition=1)
    delete(1, partition=5)
    delete(1, name=pair.name("missing"))
    delete(1, name="a b")
    delete(1, name="__cluster_metadata")
    delete(1, name=compacted)
    delete(1, name=both)
    delete(1, name=neither)
    pair.send(DeleteRecordsRequest([], 5_000), version)
    twice = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(1, 9), DeleteRecordsPartition(1, 0)]) for _ in range(2)]
    pair.send(DeleteRecordsRequest(twice, 5_000), version)  # of each partition the last counts
    pair.send(produce(topic, batch(b"c"), version=9), 9)


@scenario(DescribeLogDirsRequest)
def describe_log_dirs(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 2)
    pair.send(produce(topic, batch(b"a" * 500), version=9), 9)
    asked: tuple[list[tuple[str, list[int]]], ...] = (
        [(topic, [0, 1])], [(topic, [0])], [(topic, [9])], [(topic, [])], [(pair.name("missing"), [0])], [],
    )  # fmt: skip
    for topics in asked:
        pair.send(DescribeLogDirsRequest([DescribableLogDirTopic(*each) for each in topics]), version)


@scenario(DescribeLogDirsRequest, servers="quiet")
def describe_two_log_dirs(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 1)
    pair.send(DescribeLogDirsRequest([DescribableLogDirTopic(topic, [7])]), version)
    pair.send(DescribeLogDirsRequest([DescribableLogDirTopic(pair.name("missing"), [7])]), version)


@scenario(AlterReplicaLogDirsRequest, servers="quiet")
def alter_replica_log_dirs(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 1)

    def move(path: str, name: str, *partitions: int) -> None:
        def build(side: Side) -> AlterReplicaLogDirsRequest:
            where = path.replace("{dir}", str(side.address.directory))
            return AlterReplicaLogDirsRequest(
                [AlterReplicaLogDir(where, [AlterReplicaLogDirTopic(name, list(partitions))])]
            )

        pair.send(build, version)

    move("{dir}/nowhere", topic, 0)
    move("relative", topic, 0)
    move("", topic, 0)
    move("{dir}/data", pair.name("missing"), 0)
    move("{dir}/more", topic, 9)
    move("{dir}/data", topic)
    pair.send(AlterReplicaLogDirsRequest([]), version)
    for folder in ("more", "data"):
        move(f"{{dir}}/{folder}", topic, 0)
        pair.wait(
            DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0])]), 4,
            lambda answer, folder=folder: any(r.log_dir.endswith(folder) and r.topics and not r.topics[0].partitions[0].is_future_key for r in answer.results),  # type: ignore[misc]
        )  # fmt: skip
