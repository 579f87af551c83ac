"""Transactions: both protocols (v1 with explicit partitions, v2 with epoch bumps), fencing, markers, and bad input."""

from __future__ import annotations

from ottla.protocol.generated.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.protocol.generated.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.generated.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.protocol.generated.describe_transactions_request import DescribeTransactionsRequest
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.list_transactions_request import ListTransactionsRequest
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.generated.produce_request import ProduceRequest
from ottla.protocol.generated.txn_offset_commit_request import TxnOffsetCommitRequest
from ottla.protocol.generated.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.primitives import Message
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.groups import coordinator as group_coordinator
from tests.interop.differential.transactional import Producer, coordinator


def read(pair: Pair, topic: str, *, isolation: int = 1, partition: int = 0, offset: int = 0) -> None:
    """What a consumer gets, aborted transactions included."""
    wanted = FetchPartition(partition, -1, offset, -1, -1, 1 << 20)
    pair.send(
        FetchRequest(
            max_wait_ms=0, max_bytes=1 << 20, isolation_level=isolation, topics=[FetchTopic(topic, partitions=[wanted])]
        ),
        11,
    )
    pair.send(
        ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, -1)])], 1000), 7
    )


def offsets(pair: Pair, group: str, topic: str, *, stable: bool) -> None:
    asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    pair.send(OffsetFetchRequest(groups=[asked], require_stable=stable), 8)


@scenario(FindCoordinatorRequest, versions=range(1, 7))
def find_transaction_coordinator(pair: Pair, version: int) -> None:
    coordinator(pair)
    for key in ("a", "", "another"):
        pair.send(FindCoordinatorRequest(key, 1, [key, "b"]), version)


@scenario(InitProducerIdRequest)
def init_transactional(pair: Pair, version: int) -> None:
    coordinator(pair)
    producer = Producer(pair)
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        producer.init(version, timeout_ms)
    producer.describe()
    producer.init(version, 900_000)
    producer.init(version)
    producer.describe()
    if version < 3:
        return
    producer.init(version, bump=True)  # KIP-360
    producer.init(version, bump=True, epoch=-1)  # a retry of that
    producer.init(version, bump=True, epoch=-2)
    producer.init(version, bump=True, epoch=7)
    for ids in ((99_999, 0), (5, -1), (-1, 5), (99_999, 32_766)):
        pair.send(InitProducerIdRequest(producer.transactional_id, 1000, *ids), version)
    pair.send(InitProducerIdRequest(pair.name("fresh"), 1000, 99_999, 3), version)
    producer.describe()


@scenario(InitProducerIdRequest)
def init_fences_an_open_transaction(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"))
    producer = Producer(pair)
    producer.init(version)
    producer.produce(topic, b"a", b"b")
    producer.describe()
    producer.init(version)  # CONCURRENT_TRANSACTIONS, and an abort
    producer.settle()
    producer.describe()
    producer.produce(topic, b"c")  # the old epoch
    producer.produce(topic, b"c", version=9)
    producer.end(5)
    producer.end(3)
    producer.add(3, (topic, 0))
    producer.init(version)
    producer.describe()
    read(pair, topic)
    producer.produce(topic, b"d")
    producer.end(5)
    read(pair, topic)


@scenario(AddPartitionsToTxnRequest)
def add_partitions(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"), 3)
    producer = Producer(pair)
    producer.add(version, (topic, 0))  # nobody has this id
    producer.init()
    producer.add(version, (topic, 0), verify=True)
    producer.add(version, (topic, 0), (topic, 1))
    producer.add(version, (topic, 0))
    producer.add(version, (topic, 0), (topic, 2), verify=True)
    producer.add(version, (topic, 7), (topic, 2), ("nowhere", 0))
    producer.add(version, (topic, 2), epoch=-1)
    producer.add(version, (topic, 2), epoch=1)
    producer.add(version, (topic, 2), producer=1)
    producer.add(version, (topic, 0), verify=True, epoch=1)
    producer.add(version, (topic, 0), verify=True, producer=1)
    producer.describe()
    producer.end(3)
    producer.add(version, (topic, 0), verify=True)
    producer.describe()


@scenario(AddPartitionsToTxnRequest, versions=range(0, 4, 3))
def add_odd_partitions(pair: Pair, version: int) -> None:
    """A topic twice, a partition twice, a topic without partitions: each once where single partitions have errors."""
    coordinator(pair)
    topic = pair.create(pair.name("t"), 2)
    producer = Producer(pair)
    producer.init()
    for wanted in ([[], [0]], [[9], [0, 0], []], [[]], [[0, 1, 0]]):
        topics = [AddPartitionsToTxnTopic(topic, partitions) for partitions in wanted]
        for beside in (0, 77):

            def build(side: Side, topics: list[AddPartitionsToTxnTopic] = topics, beside: int = beside) -> Message:
                producer_id = side.memory[f"{producer.transactional_id}.id"] + beside
                return AddPartitionsToTxnRequest([], producer.transactional_id, producer_id, 0, topics)

            pair.send(build, version)
    producer.end(3, commit=False)


@scenario(AddPartitionsToTxnRequest, versions=range(4, 6))
def add_partitions_of_several(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"), 2)
    producers = [Producer(pair, f"txn{i}") for i in range(3)]
    for producer in producers:
        producer.init()

    def build(side: Side) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            [
                AddPartitionsToTxnTransaction(
                    producer.transactional_id,
                    side.memory[f"{producer.transactional_id}.id"],
                    0,
                    number == 2,
                    [AddPartitionsToTxnTopic(topic, [number % 2])],
                )
                for number, producer in enumerate(producers)
            ]
            + [AddPartitionsToTxnTransaction("", 1, 0, False, [AddPartitionsToTxnTopic(topic, [0])])]
        )

    pair.send(build, version)
    for producer in producers:
        producer.describe()


@scenario(EndTxnRequest)
def end_transactions(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"), 2)
    producer = Producer(pair)
    producer.end(version)  # nobody has this id
    pair.send(EndTxnRequest("", 1, 1, True), version)
    producer.init()
    producer.end(version, commit=True)  # of nothing
    producer.end(version, commit=False)
    producer.describe()
    for commit in (True, False, True):
        if version < 5:
            producer.add(3, (topic, 0), (topic, 1))
        producer.produce(topic, b"a%d" % commit, version=12 if version >= 5 else 9)
        producer.end(version, commit=commit, epoch=1)
        producer.end(version, commit=commit, producer=1)
        producer.end(version, commit=commit)
        producer.describe()
        producer.end(version, commit=commit, epoch=-1)  # a retry, with transactions v2
        producer.end(version, commit=not commit, epoch=-1)
        producer.end(version, commit=commit)
        producer.end(version, commit=not commit)
        producer.describe()
    read(pair, topic)
    read(pair, topic, isolation=0)
    pair.send(DescribeProducersRequest([TopicRequest(topic, [0, 1])]), 0)


@scenario(ProduceRequest)
def produce_in_transactions(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"), 3)
    producer = Producer(pair)
    producer.produce(topic, b"x", version=version)  # before the id exists
    producer.init()
    old = version < 12
    producer.produce(topic, b"a", version=version, sequence=0)  # v1: not added
    if old:
        producer.add(3, (topic, 0))
    producer.produce(topic, b"a", b"b", version=version)
    producer.produce(topic, b"a", b"b", version=version, sequence=0)  # a duplicate
    producer.produce(topic, b"c", version=version, sequence=9)
    producer.produce(topic, b"c", version=version, epoch=-1)
    producer.produce(topic, b"c", version=version, epoch=1)
    producer.produce(topic, b"c", version=version, producer=500)
    producer.produce(topic, b"c", version=version, transactional_id=None)
    producer.produce(topic, b"c", version=version, transactional_id="another")
    producer.produce(topic, b"c", version=version, transactional=False)
    producer.produce(topic, b"d", version=version, partition=1, sequence=4)
    producer.produce(topic, b"d", version=version, partition=1)
    producer.produce(topic, b"d", version=version, partition=9)
    producer.describe()
    read(pair, topic)
    producer.end(5 if not old else 3, commit=True)
    read(pair, topic)
    producer.produce(topic, b"e", version=version)  # v1: the transaction has ended
    producer.describe()
    pair.send(DescribeProducersRequest([TopicRequest(topic, [0, 1, 2])]), 0)


@scenario(ProduceRequest, versions=range(9, 14))
def aborted_transactions(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"))
    first, second = Producer(pair, "one"), Producer(pair, "two")
    end_version = 5 if version >= 12 else 3
    for producer in (first, second):
        producer.init()
    for round_ in range(4):
        for producer in (first, second):
            if version < 12:
                producer.add(3, (topic, 0))
            producer.produce(topic, b"r%d" % round_, version=version)
        read(pair, topic)
        first.end(end_version, commit=round_ % 2 == 0)
        read(pair, topic)
        second.end(end_version, commit=round_ == 3)
        read(pair, topic)
        read(pair, topic, offset=5)
        read(pair, topic, isolation=0)


@scenario(AddOffsetsToTxnRequest)
def add_offsets(pair: Pair, version: int) -> None:
    coordinator(pair)
    group_coordinator(pair)
    producer = Producer(pair)
    producer.add_offsets(version, "g")
    producer.init()
    for group in ("g", "", "another"):
        producer.add_offsets(version, pair.name(group) if group else "")
    producer.add_offsets(version, "g", epoch=1)
    producer.add_offsets(version, "g", epoch=-1)
    producer.add_offsets(version, "g", producer=1)
    producer.describe()
    producer.end(3, commit=False)
    producer.describe()


@scenario(TxnOffsetCommitRequest)
def commit_transactional_offsets(pair: Pair, version: int) -> None:
    coordinator(pair)
    group_coordinator(pair)
    topic = pair.create(pair.name("t"), 2)
    group = pair.name("g")
    producer = Producer(pair)
    producer.commit_offsets(version, group, topic, 1)  # nobody has this id
    producer.init()
    end_version = 5 if version >= 5 else 3
    producer.commit_offsets(version, group, topic, 1)  # v1: not added
    for number, commit in enumerate((True, False, True), 1):
        if version < 5:
            producer.add_offsets(3, group)
        producer.commit_offsets(version, group, topic, number * 10)
        offsets(pair, group, topic, stable=True)
        offsets(pair, group, topic, stable=False)
        producer.commit_offsets(version, group, topic, 1, epoch=1)
        producer.commit_offsets(version, group, topic, 1, epoch=-1)
        producer.commit_offsets(version, group, topic, 1, producer=1)
        producer.commit_offsets(version, group, "nowhere", 1)
        producer.commit_offsets(version, group, topic, 1, partition=9)
        producer.commit_offsets(version, group, topic, 1, metadata="x" * 5000)
        producer.commit_offsets(version, "", topic, 1)
        producer.commit_offsets(version, group, topic, 1, generation=5, member="me")
        producer.commit_offsets(version, group, topic, 1, member="me", instance="i")
        producer.commit_offsets(version, pair.name("none"), topic, 1, generation=3, member="me")
        producer.end(end_version, commit=commit)
        offsets(pair, group, topic, stable=True)


@scenario(WriteTxnMarkersRequest)
def write_markers(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"), 2)
    producer = Producer(pair)
    producer.init()

    def mark(
        epoch: int,
        *partitions: int,
        commit: bool = False,
        coordinator_epoch: int = 0,
        level: int = 0,
        name: str = topic,
    ) -> None:
        def build(side: Side) -> WriteTxnMarkersRequest:
            marker = WritableTxnMarker(
                side.memory[f"{producer.transactional_id}.id"],
                epoch,
                commit,
                [WritableTxnMarkerTopic(name, list(partitions))],
                coordinator_epoch,
            )
            if version >= 2:
                marker.transaction_version = level
            return WriteTxnMarkersRequest([marker])

        pair.send(build, version)

    pair.send(WriteTxnMarkersRequest([]), version)
    mark(0, 0, name="nowhere")
    mark(0, 0, 9)
    mark(0)  # for no partition
    mark(-3)
    mark(-3, 1, 9)  # below what a producer that was never seen has
    mark(-1, 0, name="nowhere")
    pair.send(
        WriteTxnMarkersRequest([WritableTxnMarker(-1, -3, False, [WritableTxnMarkerTopic(topic, [1, 9])], 0)]), version
    )
    producer.produce(topic, b"a")
    read(pair, topic)
    mark(-1, 0)
    mark(0, 0, coordinator_epoch=-1)
    mark(0, 0, level=2)
    mark(0, 0, coordinator_epoch=3)  # as kafka-transactions aborts a hanging one
    read(pair, topic)
    mark(0, 0, coordinator_epoch=2)
    mark(1, 0, level=2, coordinator_epoch=3)
    mark(1, 0, level=2, coordinator_epoch=3)
    mark(0, 0, coordinator_epoch=3)
    read(pair, topic)
    pair.send(DescribeProducersRequest([TopicRequest(topic, [0, 1])]), 0)


@scenario(DescribeTransactionsRequest)
def describe_transactions(pair: Pair, version: int) -> None:
    coordinator(pair)
    topics = [pair.create(pair.name(f"t{i}"), 2) for i in range(2)]
    producer = Producer(pair)
    pair.send(DescribeTransactionsRequest([producer.transactional_id, "", "another"]), version)
    producer.init()
    pair.send(DescribeTransactionsRequest([producer.transactional_id]), version)
    for topic in topics:
        producer.produce(topic, b"a", partition=1)
    pair.send(DescribeTransactionsRequest([producer.transactional_id, "none"]), version)
    producer.end()
    pair.send(DescribeTransactionsRequest([producer.transactional_id]), version)
    pair.send(DescribeTransactionsRequest([]), version)


@scenario(ListTransactionsRequest, servers="transactions")
def list_transactions(pair: Pair, version: int) -> None:
    coordinator(pair)
    # What other scenarios left behind gets its symbols in one order here: the lists come in any.
    left = [f"list_transactions.v{v}.txn{i}" for v in range(version) for i in range(3)]
    pair.send(DescribeTransactionsRequest([*left, "timed_out_transaction.v5.txn"]), 0)
    topic = pair.create(pair.name("t"))
    producers = [Producer(pair, f"txn{i}") for i in range(3)]
    for producer in producers:
        producer.init()
    producers[0].produce(topic, b"a")
    producers[1].produce(topic, b"a")
    producers[1].end(commit=False)
    for states in (
        [],
        ["Ongoing"],
        ["Empty", "CompleteAbort"],
        ["Nonsense"],
        ["Nonsense", "Ongoing", "Dead"],
        ["ongoing"],
    ):
        pair.send(ListTransactionsRequest(states), version)
    pair.send(ListTransactionsRequest([], [123_456_789]), version)
    pair.send(lambda side: ListTransactionsRequest([], [side.memory[f"{producers[2].transactional_id}.id"]]), version)
    if version >= 1:
        for duration_ms in (-1, 0, 3_600_000):
            pair.send(ListTransactionsRequest(["Ongoing"], [], duration_ms), version)
    if version >= 2:
        for pattern in (None, "", ".*txn1", "txn1", ".*v2.*[02]", "[", "(?=x)"):
            pair.send(ListTransactionsRequest([], [], -1, pattern), version)
    producers[0].end()


@scenario(InitProducerIdRequest, versions=range(5, 6), servers="transactions")
def timed_out_transaction(pair: Pair, version: int) -> None:
    coordinator(pair)
    topic = pair.create(pair.name("t"))
    producer = Producer(pair)
    producer.init(version, 1_000)  # long enough that the records are there when it is over
    producer.produce(topic, b"a")
    request = DescribeTransactionsRequest([producer.transactional_id])
    pair.wait(request, 0, lambda a: a.transaction_states[0].transaction_state == "CompleteAbort")
    producer.describe()
    producer.produce(topic, b"b")
    producer.end(5)
    producer.init(version)
    read(pair, topic)


@scenario(EndTxnRequest, versions=range(4, 6))
def many_epochs(pair: Pair, version: int) -> None:
    """Rotation to a new producer id is reached by a marker with a late epoch in unit tests; here, a hundred epochs."""
    coordinator(pair)
    topic = pair.create(pair.name("t"))
    producer = Producer(pair)
    producer.init()
    for number in range(10):
        if version < 5:
            producer.add(3, (topic, 0))
        producer.produce(topic, b"%d" % number, version=12 if version >= 5 else 9)
        producer.end(version, commit=number % 3 != 0)
    producer.describe()
    read(pair, topic)
