"""Transactions: listed over all brokers, described by their coordinators, producers' states on partitions, aborted."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ottla.client.cluster import TRANSACTION, Cluster
from ottla.client.errors import check
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.describe_producers_response import ProducerState
from ottla.protocol.generated.describe_transactions_response import TransactionState
from ottla.protocol.generated.list_transactions_response import TransactionState as ListedTransaction


def list_transactions(
    cluster: Cluster, *, duration_ms: int = -1, pattern: str | None = None, producer_ids: Sequence[int] = ()
) -> list[tuple[int, ListedTransaction]]:
    """With the broker that coordinates each."""
    from ottla.protocol.generated.list_transactions_request import ListTransactionsRequest
    from ottla.protocol.generated.list_transactions_response import ListTransactionsResponse

    states = []
    for broker in sorted(cluster.describe("listTransactions").brokers, key=lambda broker: broker.node_id):
        request = ListTransactionsRequest([], list(producer_ids), duration_ms, pattern)
        answer = cluster.node_call("listTransactions", broker.node_id, request, ListTransactionsResponse)
        check(answer.error_code)
        states += [(broker.node_id, row) for row in answer.transaction_states]
    return states


def describe_transaction(cluster: Cluster, transactional_id: str) -> tuple[int, TransactionState]:
    """The coordinator's id, and the state of the transaction there."""
    from ottla.protocol.generated.describe_transactions_request import DescribeTransactionsRequest
    from ottla.protocol.generated.describe_transactions_response import DescribeTransactionsResponse

    answer = cluster.coordinator_call(
        "describeTransactions",
        transactional_id,
        DescribeTransactionsRequest([transactional_id]),
        DescribeTransactionsResponse,
        lambda a: a.transaction_states[0].error_code,
        kind=TRANSACTION,
    )
    state = answer.transaction_states[0]
    check(state.error_code)
    _, _, node_id = cluster.retried(
        "findCoordinator", lambda deadline: cluster.coordinator(transactional_id, TRANSACTION, deadline)
    )
    return node_id, state


def describe_producers(cluster: Cluster, topic: str, partition: int, broker: int | None = None) -> list[ProducerState]:
    """Active producers of a partition, as its leader (or `broker`) reports them."""
    from ottla.protocol.generated.describe_producers_request import DescribeProducersRequest, TopicRequest
    from ottla.protocol.generated.describe_producers_response import DescribeProducersResponse

    def attempt(deadline: float) -> list[ProducerState]:
        node = broker
        if node is None:
            leaders = {
                row.partition_index: row.leader_id for row in cluster.metadata([topic], deadline).topics[0].partitions
            }
            if leaders.get(partition, -1) < 0:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            node = leaders[partition]
        request = DescribeProducersRequest([TopicRequest(topic, [partition])])
        answer = cluster.node(node, deadline).call(request, DescribeProducersResponse, deadline)
        row = answer.topics[0].partitions[0]
        check(row.error_code, row.error_message)
        return row.active_producers

    return cluster.retried("describeProducers", attempt)


def abort_transaction(
    cluster: Cluster, topic: str, partition: int, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker, through the partition's leader."""
    from ottla.client.topics import leaders_of
    from ottla.protocol.generated.write_txn_markers_request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from ottla.protocol.generated.write_txn_markers_response import WriteTxnMarkersResponse

    leader = leaders_of(cluster, [topic])[topic, partition]
    topics = [WritableTxnMarkerTopic(topic, [partition])]
    marker = WritableTxnMarker(producer_id, producer_epoch, False, topics, coordinator_epoch)
    request = WriteTxnMarkersRequest([marker])
    answer = cluster.node_call("abortTransaction", leader, request, WriteTxnMarkersResponse, 1)
    check(answer.markers[0].topics[0].partitions[0].error_code)


def terminate_transaction(cluster: Cluster, transactional_id: str) -> None:
    """Fence the producer: a new epoch, which aborts what was open."""
    from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
    from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse

    request = InitProducerIdRequest(transactional_id, 60000, -1, -1)
    deadline = time.monotonic() + cluster.settings.api_timeout_ms / 1000
    while True:
        answer = cluster.coordinator_call(
            "fenceProducer", transactional_id, request, InitProducerIdResponse, lambda a: a.error_code, kind=TRANSACTION
        )
        # The first call starts to abort the open transaction; calls return CONCURRENT_TRANSACTIONS until that is done.
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
            break
        time.sleep(cluster.settings.retry_backoff_ms / 1000)
    check(answer.error_code)
