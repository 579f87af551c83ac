"""The differences that are right, each with its reason. Everything else in an answer must be equal.

A path is the response's class and its fields, `[]` for any element of an array. USED collects the rules that an answer
needed (two orders, two values): `RULES=1 pytest tests/interop/test_differential.py` prints those that none did.
"""

from __future__ import annotations

from typing import NamedTuple

USED: set[str] = set()


class Allowed(NamedTuple):
    path: str
    reason: str


SETS = (
    Allowed("ProduceResponse.responses[].partition_responses", "hash order: it differs between two Apache Kafkas"),
    Allowed("ProduceResponse.responses", "hash order of the partitions, by topic ids that are random"),
    Allowed("DeleteRecordsResponse.topics", "hash order of the partitions"),
    Allowed("DeleteRecordsResponse.topics[].partitions", "as above"),
    Allowed("MetadataResponse.topics", "all topics come in the order of a hash map; asked by name they come as asked"),
    Allowed("DescribeConfigsResponse.results[].configs", "hash order; clients look settings up by name"),
    Allowed("ListConfigResourcesResponse.config_resources", "hash order"),
    Allowed("ApiVersionsResponse.supported_features", "hash order"),
    Allowed("ApiVersionsResponse.finalized_features", "hash order"),
    Allowed("DescribeLogDirsResponse.results[].topics[].partitions", "hash order"),
    Allowed("ListGroupsResponse.groups", "hash order"),
    Allowed("CreatePartitionsResponse.results", "hash order; each entry names its topic"),
    Allowed("ListOffsetsResponse.topics", "hash order of the partitions"),
    Allowed("ListOffsetsResponse.topics[].partitions", "hash order: it differs between two Apache Kafkas"),
    Allowed("OffsetFetchResponse.topics", "hash order of a group's offsets when all are asked for"),
    Allowed("OffsetFetchResponse.groups[].topics", "as above"),
    Allowed("OffsetFetchResponse.topics[].partitions", "as above"),
    Allowed("OffsetFetchResponse.groups[].topics[].partitions", "as above"),
    Allowed("DeleteGroupsResponse.results", "hash order; each entry names its group"),
    Allowed("DeleteTopicsResponse.responses", "hash order of the topics asked for"),
    Allowed("ElectLeadersResponse.replica_election_results", "hash order when all partitions are asked for"),
    Allowed("ConsumerGroupHeartbeatResponse.assignment.topic_partitions", "hash order of the topic ids"),
    Allowed("ConsumerGroupHeartbeatResponse.assignment.topic_partitions[].partitions", "hash order of a small map"),
    Allowed("ConsumerGroupDescribeResponse.groups", "hash order of the coordinators' partitions"),
    Allowed("ConsumerGroupDescribeResponse.groups[].members", "hash order of the members"),
    Allowed("ConsumerGroupDescribeResponse.groups[].members[].assignment.topic_partitions", "hash order of topic ids"),
    Allowed("ConsumerGroupDescribeResponse.groups[].members[].target_assignment.topic_partitions", "as above"),
    Allowed("ConsumerGroupDescribeResponse.groups[].members[].subscribed_topic_names", "hash order"),
    Allowed("StreamsGroupDescribeResponse.groups[].members", "hash order of the members"),
    Allowed("StreamsGroupHeartbeatResponse.partitions_by_user_endpoint", "hash order of the members"),
    Allowed("StreamsGroupHeartbeatResponse.partitions_by_user_endpoint[].active_partitions", "salted hash order"),
    Allowed("StreamsGroupHeartbeatResponse.partitions_by_user_endpoint[].standby_partitions", "hash order of topics"),
    Allowed("ShareGroupHeartbeatResponse.assignment.topic_partitions", "hash order of the topic ids"),
    Allowed("ShareGroupHeartbeatResponse.assignment.topic_partitions[].partitions", "hash order of a small map"),
    Allowed("ShareGroupDescribeResponse.groups", "hash order of the coordinators' partitions"),
    Allowed("ShareGroupDescribeResponse.groups[].members", "hash order of the members"),
    Allowed("ShareGroupDescribeResponse.groups[].members[].assignment.topic_partitions", "hash order of topic ids"),
    Allowed("ShareFetchResponse.responses", "hash order"),
    Allowed("ShareFetchResponse.responses[].partitions", "hash order"),
    Allowed("ShareAcknowledgeResponse.responses", "hash order"),
    Allowed("ShareAcknowledgeResponse.responses[].partitions", "hash order"),
    Allowed("DescribeShareGroupOffsetsResponse.groups[].topics", "hash order of a group's topics"),
    Allowed("DescribeShareGroupOffsetsResponse.groups[].topics[].partitions", "hash order"),
    Allowed("AddPartitionsToTxnResponse.results_by_topic_v3_and_below", "hash order"),
    Allowed("AddPartitionsToTxnResponse.results_by_topic_v3_and_below[].results_by_partition", "hash order"),
    Allowed("AddPartitionsToTxnResponse.results_by_transaction", "in the order in which they were done"),
    Allowed("AddPartitionsToTxnResponse.results_by_transaction[].topic_results", "hash order"),
    Allowed("AddPartitionsToTxnResponse.results_by_transaction[].topic_results[].results_by_partition", "hash order"),
    Allowed("DescribeProducersResponse.topics[].partitions[].active_producers", "hash order of producer ids"),
    Allowed("DescribeTransactionsResponse.transaction_states[].topics", "hash order"),
    Allowed("DescribeTransactionsResponse.transaction_states[].topics[].partitions", "hash order"),
    Allowed("ListTransactionsResponse.transaction_states", "hash order"),
    Allowed("ListTransactionsResponse.unknown_state_filters", "hash order"),
    Allowed("WriteTxnMarkersResponse.markers[].topics", "hash order"),
    Allowed("WriteTxnMarkersResponse.markers[].topics[].partitions", "hash order"),
    Allowed("JoinGroupResponse.members", "hash order of the members; the leader looks them up by id"),
)
"""Arrays that are sets: compared after sorting."""

MASKED = (
    Allowed("DescribeConfigsResponse.results[].configs[].documentation", "prose, which Ottla writes itself"),
    Allowed("ApiVersionsResponse.finalized_features_epoch", "the offset of the metadata log, which grows with time"),
    Allowed("DescribeQuorumResponse.topics[].partitions[].high_watermark", "the length of the metadata log"),
    Allowed("DescribeQuorumResponse.topics[].partitions[].current_voters[].log_end_offset", "as above"),
    Allowed("DescribeLogDirsResponse.results[].usable_bytes", "the disk, which others fill too"),
)
"""Fields whose presence is compared (a default stays itself) but not their value."""

CUT_BATCHES = Allowed(
    "FetchResponse.responses[].partitions[].records",
    "Apache Kafka ends a fetch anywhere, Ottla at the end of a batch: no client can use the part of a cut one",
)

LATER_APIS: frozenset[int] = frozenset()
"""What Apache Kafka advertises and Ottla does not answer yet: left out of its ApiVersions. An API that is built goes
from here, or the test fails."""

NOT_ASKED = (
    Allowed("JoinGroup of consumers with unreadable metadata", "an exception in Apache Kafka's timer: no answer"),
    Allowed("AlterConfigs with one resource twice", "Apache Kafka loses the exception and never answers"),
    Allowed("Produce with null records", "a NullPointerException in Apache Kafka, which then never answers"),
    Allowed("Produce with a partition twice", "Apache Kafka drops the first without a word; Ottla appends both"),
    Allowed(
        "Produce with a good CRC around broken records, to a topic that is not compacted",
        "a batch is opaque: records are read only where a rule is about records (DESIGN, decision 2)",
    ),
    Allowed(
        "Produce of a compressed batch whose offsets are not 0, 1, 2 ...",
        "Apache Kafka stumbles (error -1); a batch is opaque, as above",
    ),
    Allowed(
        "DeleteRecords into a batch while a transaction is open",
        "Apache Kafka's last stable offset is then the batch's first: below the log start, where nobody can read",
    ),
    Allowed("Fetch with the zero topic id", "UNKNOWN_SERVER_ERROR of Apache Kafka, sometimes; Ottla: of an unknown id"),
    Allowed("Fetch that adds and forgets a partition by an unknown id", "Apache Kafka keeps it, Ottla forgets it"),
    Allowed(
        "DescribeTopicPartitions from a partition near 2^31", "Apache Kafka's sum overflows, its cursor is below zero"
    ),
    Allowed("Metadata v12 with neither name nor id", "a NullPointerException in Apache Kafka, answered as error -1"),
    Allowed("IncrementalAlterConfigs with an unknown operation", "as above"),
    Allowed("ShareFetch with an unknown topic id", "an exception in Apache Kafka, which then fails the whole session"),
    Allowed("DescribeShareGroupOffsets of a partition that is not there", "Apache Kafka never answers"),
    Allowed("AddPartitionsToTxn without a transaction", "Apache Kafka never answers"),
    Allowed("WriteTxnMarkers with a partition twice in a marker", "Apache Kafka waits for two results, and gets one"),
    Allowed("CreateTopics with a timeout of 0", "a race in Apache Kafka; Ottla has decided before the time is over"),
)
"""Requests that no scenario compares, and why."""
