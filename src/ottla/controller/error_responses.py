"""A refusal of a whole request as that request's response: where the code goes differs by API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.controller.outcome import ApiError, refused
from ottla.model.errors import KafkaError
from ottla.protocol.generated import alter_client_quotas_response as quotas
from ottla.protocol.generated.allocate_producer_ids_response import AllocateProducerIdsResponse
from ottla.protocol.generated.alter_configs_response import AlterConfigsResourceResponse as LegacyResource
from ottla.protocol.generated.alter_configs_response import AlterConfigsResponse
from ottla.protocol.generated.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.protocol.generated.alter_partition_response import AlterPartitionResponse
from ottla.protocol.generated.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.generated.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from ottla.protocol.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.protocol.generated.broker_registration_response import BrokerRegistrationResponse
from ottla.protocol.generated.controller_registration_response import ControllerRegistrationResponse
from ottla.protocol.generated.create_acls_response import AclCreationResult, CreateAclsResponse
from ottla.protocol.generated.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.protocol.generated.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.protocol.generated.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.generated.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from ottla.protocol.generated.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.generated.describe_quorum_response import DescribeQuorumResponse
from ottla.protocol.generated.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.protocol.generated.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.protocol.generated.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.generated.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from ottla.protocol.generated.renew_delegation_token_response import RenewDelegationTokenResponse
from ottla.protocol.generated.unregister_broker_response import UnregisterBrokerResponse
from ottla.protocol.generated.update_features_response import UpdateFeaturesResponse
from ottla.protocol.primitives import Message


def error_response(request: Message, error: KafkaError) -> Message:
    return _RESPONSES[type(request).__name__](request, refused(error))


def _create_topics(request: Any, error: ApiError) -> Message:
    topics = [
        CreatableTopicResult(name=t.name, error_code=error.code, error_message=error.message) for t in request.topics
    ]
    return CreateTopicsResponse(topics=topics)


def _delete_topics(request: Any, error: ApiError) -> Message:
    results = [
        DeletableTopicResult(name=n, error_code=error.code, error_message=error.message) for n in request.topic_names
    ]
    results += [
        DeletableTopicResult(name=t.name, topic_id=t.topic_id, error_code=error.code, error_message=error.message)
        for t in request.topics
    ]
    return DeleteTopicsResponse(responses=results)


def _create_partitions(request: Any, error: ApiError) -> Message:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(t.name, error.code, error.message) for t in request.topics]
    )


def _incremental_configs(request: Any, error: ApiError) -> Message:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error.code, error.message, r.resource_type, r.resource_name)
            for r in request.resources
        ]
    )


def _legacy_configs(request: Any, error: ApiError) -> Message:
    return AlterConfigsResponse(
        responses=[
            LegacyResource(error.code, error.message, r.resource_type, r.resource_name) for r in request.resources
        ]
    )


def _elect_leaders(request: Any, error: ApiError) -> Message:
    results = [
        ReplicaElectionResult(t.topic, [PartitionResult(p, error.code, error.message) for p in t.partitions])
        for t in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)


def _create_acls(request: Any, error: ApiError) -> Message:
    return CreateAclsResponse(results=[AclCreationResult(error.code, error.message) for _ in request.creations])


def _delete_acls(request: Any, error: ApiError) -> Message:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error.code, error.message) for _ in request.filters]
    )


def _scram(request: Any, error: ApiError) -> Message:
    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(name, error.code, error.message) for name in sorted(users)]
    )


def _client_quotas(request: Any, error: ApiError) -> Message:
    return quotas.AlterClientQuotasResponse(
        entries=[
            quotas.EntryData(
                error.code,
                error.message,
                [quotas.EntityData(part.entity_type, part.entity_name) for part in entry.entity],
            )
            for entry in request.entries
        ]
    )


def _code_only(response: Callable[..., Message]) -> Callable[[Any, ApiError], Message]:
    return lambda _request, error: response(error_code=error.code)


def _code_and_message(response: Callable[..., Message]) -> Callable[[Any, ApiError], Message]:
    return lambda _request, error: response(error_code=error.code, error_message=error.message)


_RESPONSES: dict[str, Callable[[Any, ApiError], Message]] = {
    "CreateTopicsRequest": _create_topics,
    "DeleteTopicsRequest": _delete_topics,
    "CreatePartitionsRequest": _create_partitions,
    "IncrementalAlterConfigsRequest": _incremental_configs,
    "AlterConfigsRequest": _legacy_configs,
    "ElectLeadersRequest": _elect_leaders,
    "BrokerRegistrationRequest": _code_only(BrokerRegistrationResponse),
    "BrokerHeartbeatRequest": _code_only(BrokerHeartbeatResponse),
    "ControllerRegistrationRequest": _code_and_message(ControllerRegistrationResponse),
    "UnregisterBrokerRequest": _code_and_message(UnregisterBrokerResponse),
    "UpdateFeaturesRequest": _code_and_message(UpdateFeaturesResponse),
    "AllocateProducerIdsRequest": _code_only(AllocateProducerIdsResponse),
    "DescribeQuorumRequest": _code_and_message(DescribeQuorumResponse),
    "AlterPartitionRequest": _code_only(AlterPartitionResponse),
    "AssignReplicasToDirsRequest": _code_only(AssignReplicasToDirsResponse),
    "AlterPartitionReassignmentsRequest": _code_and_message(AlterPartitionReassignmentsResponse),
    "ListPartitionReassignmentsRequest": _code_and_message(ListPartitionReassignmentsResponse),
    "CreateAclsRequest": _create_acls,
    "DeleteAclsRequest": _delete_acls,
    "AlterUserScramCredentialsRequest": _scram,
    "AlterClientQuotasRequest": _client_quotas,
    "CreateDelegationTokenRequest": _code_only(CreateDelegationTokenResponse),
    "RenewDelegationTokenRequest": _code_only(RenewDelegationTokenResponse),
    "ExpireDelegationTokenRequest": _code_only(ExpireDelegationTokenResponse),
}
