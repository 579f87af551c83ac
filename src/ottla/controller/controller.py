"""The controller as a function: a request and the state give records and a response, and nothing else happens.

`decide` never changes durable state; only the replay of the records does. A refusal of a whole request is a response
too, so `decide` always answers. A decision's module is imported when it is first asked for: a node starts with the
registration of its broker and no more.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ottla.controller.state import ControllerState, RequestContext
from ottla.model.decision import Decision
from ottla.model.errors import KafkaError
from ottla.protocol.primitives import Message

Decide = Callable[[ControllerState, Any, RequestContext], Decision[Message, Any]]

DECISIONS: dict[str, str] = {
    "CreateTopicsRequest": "create_topics.create_topics",
    "DeleteTopicsRequest": "delete_topics.delete_topics",
    "CreatePartitionsRequest": "create_partitions.create_partitions",
    "IncrementalAlterConfigsRequest": "configs.incremental_alter_configs",
    "AlterConfigsRequest": "configs.alter_configs",
    "ElectLeadersRequest": "leadership.elect_leaders",
    "BrokerRegistrationRequest": "brokers.register_broker",
    "BrokerHeartbeatRequest": "brokers.heartbeat",
    "ControllerRegistrationRequest": "brokers.register_controller",
    "UnregisterBrokerRequest": "brokers.unregister_broker",
    "UpdateFeaturesRequest": "features.update_features",
    "AllocateProducerIdsRequest": "producer_ids.allocate_producer_ids",
    "DescribeQuorumRequest": "quorum.describe_quorum",
    "AlterPartitionRequest": "alter_partition.alter_partition",
    "AssignReplicasToDirsRequest": "directories.assign_replicas_to_dirs",
    "AlterPartitionReassignmentsRequest": "reassignment.alter_partition_reassignments",
    "ListPartitionReassignmentsRequest": "reassignment.list_partition_reassignments",
    "CreateAclsRequest": "acls.create_acls",
    "DeleteAclsRequest": "acls.delete_acls",
    "AlterUserScramCredentialsRequest": "scram.alter_user_scram_credentials",
    "AlterClientQuotasRequest": "client_quotas.alter_client_quotas",
    "CreateDelegationTokenRequest": "delegation_tokens.create_token",
    "RenewDelegationTokenRequest": "delegation_tokens.renew_token",
    "ExpireDelegationTokenRequest": "delegation_tokens.expire_token",
}
"""Request -> module and function of this package."""


class Controller:
    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self._known: dict[str, Decide] = {}

    def decide(self, request: Message, context: RequestContext) -> Decision[Message, Message]:
        """KeyError for a request that is not the controller's."""
        name = type(request).__name__
        decide = self._known.get(name) or self._load(name)
        try:
            return decide(self.state, request, context)
        except KafkaError as error:
            from ottla.controller.error_responses import error_response

            return Decision(error_response(request, error))

    def _load(self, name: str) -> Decide:
        module, function = DECISIONS[name].split(".")
        decide: Decide = getattr(importlib.import_module(f"ottla.controller.{module}"), function)
        self._known[name] = decide
        return decide
