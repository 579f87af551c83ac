"""The controller as a function: a request and the state give records and a response, and nothing else happens.

`decide` never changes durable state; only the replay of the records does. A refusal of a whole request is a response
too, so `decide` always answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.controller.brokers import heartbeat, register_broker, register_controller, unregister_broker
from ottla.controller.configs import alter_configs, incremental_alter_configs
from ottla.controller.create_partitions import create_partitions
from ottla.controller.create_topics import create_topics
from ottla.controller.delete_topics import delete_topics
from ottla.controller.directories import assign_replicas_to_dirs
from ottla.controller.error_responses import error_response
from ottla.controller.features import update_features
from ottla.controller.leadership import elect_leaders
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.quorum import describe_quorum
from ottla.controller.reassignment import alter_partition_reassignments, list_partition_reassignments
from ottla.controller.state import ControllerState, RequestContext
from ottla.model.decision import Decision
from ottla.model.errors import KafkaError
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.alter_configs_request import AlterConfigsRequest
from ottla.protocol.generated.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from ottla.protocol.generated.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_registration_request import BrokerRegistrationRequest
from ottla.protocol.generated.controller_registration_request import ControllerRegistrationRequest
from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest
from ottla.protocol.generated.create_topics_request import CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest
from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest
from ottla.protocol.generated.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from ottla.protocol.generated.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.protocol.generated.unregister_broker_request import UnregisterBrokerRequest
from ottla.protocol.generated.update_features_request import UpdateFeaturesRequest
from ottla.protocol.primitives import Message

Decide = Callable[[ControllerState, Any, RequestContext], Decision[Message, Any]]

DECISIONS: dict[type[Message], Decide] = {
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
    CreatePartitionsRequest: create_partitions,
    IncrementalAlterConfigsRequest: incremental_alter_configs,
    AlterConfigsRequest: alter_configs,
    ElectLeadersRequest: elect_leaders,
    BrokerRegistrationRequest: register_broker,
    BrokerHeartbeatRequest: heartbeat,
    ControllerRegistrationRequest: register_controller,
    UnregisterBrokerRequest: unregister_broker,
    UpdateFeaturesRequest: update_features,
    AllocateProducerIdsRequest: allocate_producer_ids,
    DescribeQuorumRequest: describe_quorum,
    AssignReplicasToDirsRequest: assign_replicas_to_dirs,
    AlterPartitionReassignmentsRequest: alter_partition_reassignments,
    ListPartitionReassignmentsRequest: list_partition_reassignments,
}


class Controller:
    def __init__(self, state: ControllerState) -> None:
        self.state = state

    def decide(self, request: Message, context: RequestContext) -> Decision[Message, Message]:
        """KeyError for a request that is not the controller's."""
        try:
            return DECISIONS[type(request)](self.state, request, context)
        except KafkaError as error:
            return Decision(error_response(request, error))
