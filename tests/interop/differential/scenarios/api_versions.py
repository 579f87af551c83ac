"""ApiVersions, DescribeCluster, DescribeQuorum, UpdateFeatures: what a server says about itself."""

from __future__ import annotations

from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.describe_cluster_request import DescribeClusterRequest
from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.interop.differential.pair import Pair
from tests.interop.differential.scenario import scenario


@scenario(ApiVersionsRequest)
def api_versions(pair: Pair, version: int) -> None:
    pair.send(ApiVersionsRequest("pair", "1.0"), version)
    for name, software in (("", "1"), ("pair", ""), ("a b", "1"), ("pair", "1 2"), ("pair-", "1"), (".pair", "1")):
        pair.send(ApiVersionsRequest(name, software), version)
    pair.send(ApiVersionsRequest("pair", "1.0"), version, client_id=None)
    pair.send(ApiVersionsRequest("pair", "1.0"), version, client_id="")


@scenario(DescribeClusterRequest)
def describe_cluster(pair: Pair, version: int) -> None:
    pair.send(DescribeClusterRequest(), version)
    pair.send(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    for endpoint_type in (2, 0, 7):
        pair.send(DescribeClusterRequest(endpoint_type=endpoint_type), version)
    pair.send(DescribeClusterRequest(include_fenced_brokers=True), version)


@scenario(DescribeQuorumRequest)
def describe_quorum(pair: Pair, version: int) -> None:
    pair.send(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), version)
    pair.send(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(1)])]), version)
    pair.send(DescribeQuorumRequest([TopicData("other", [PartitionData(0)])]), version)
    pair.send(DescribeQuorumRequest([]), version)


@scenario(UpdateFeaturesRequest)
def update_features(pair: Pair, version: int) -> None:
    def update(*updates: FeatureUpdateKey, validate_only: bool = True) -> None:
        pair.send(UpdateFeaturesRequest(5_000, list(updates), validate_only), version)

    update()
    update(FeatureUpdateKey("no.such.feature", 1))
    update(FeatureUpdateKey("metadata.version", 999))
    update(FeatureUpdateKey("metadata.version", 1))
    update(FeatureUpdateKey("metadata.version", 0))
    update(FeatureUpdateKey("metadata.version", 0, upgrade_type=2))
    update(FeatureUpdateKey("metadata.version", 7, upgrade_type=0))
    update(FeatureUpdateKey("metadata.version", 7, upgrade_type=9))
    update(FeatureUpdateKey("group.version", -1))
    update(FeatureUpdateKey("group.version", 0, allow_downgrade=True, upgrade_type=2))
    update(FeatureUpdateKey("transaction.version", 99))
    update(FeatureUpdateKey("kraft.version", 9))
    update(FeatureUpdateKey("group.version", 1), FeatureUpdateKey("share.version", 50))
