"""The controller as a function: a request and the state give records and a response, without side effects.

`decide` never changes durable state; only the replay of the records does. A refusal of a whole request is a response
too, so `decide` always answers. The module of a decision is imported at its first use, so a node imports only the
registration of its broker at start.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.model.decision import Decision
from ottla.model.errors import KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.primitives import Message

Decide = Callable[[ControllerState, Any, ControllerRequestContext], Decision[Message, Any]]

DECISIONS: dict[int, str] = {
    ApiKey.CREATE_TOPICS: "create_topics.create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics.delete_topics",
    ApiKey.CREATE_PARTITIONS: "create_partitions.create_partitions",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs.incremental_alter_configs",
    ApiKey.ALTER_CONFIGS: "configs.alter_configs",
    ApiKey.ELECT_LEADERS: "leadership.elect_leaders",
    ApiKey.BROKER_REGISTRATION: "brokers.register_broker",
    ApiKey.BROKER_HEARTBEAT: "brokers.heartbeat",
    ApiKey.CONTROLLER_REGISTRATION: "brokers.register_controller",
    ApiKey.UNREGISTER_BROKER: "brokers.unregister_broker",
    ApiKey.UPDATE_FEATURES: "features.update_features",
    ApiKey.ALLOCATE_PRODUCER_IDS: "producer_ids.allocate_producer_ids",
    ApiKey.DESCRIBE_QUORUM: "quorum.describe_quorum",
    ApiKey.ALTER_PARTITION: "alter_partition.alter_partition",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "directories.assign_replicas_to_dirs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "reassignment.alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "reassignment.list_partition_reassignments",
    ApiKey.CREATE_ACLS: "acls.create_acls",
    ApiKey.DELETE_ACLS: "acls.delete_acls",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram.alter_user_scram_credentials",
    ApiKey.ALTER_CLIENT_QUOTAS: "client_quotas.alter_client_quotas",
    ApiKey.CREATE_DELEGATION_TOKEN: "delegation_tokens.create_token",
    ApiKey.RENEW_DELEGATION_TOKEN: "delegation_tokens.renew_token",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "delegation_tokens.expire_token",
}
"""API -> module and function of this package."""


class Controller:
    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self._decisions: dict[int, Decide] = {}

    def decide(self, request: Message, context: ControllerRequestContext) -> Decision[Message, Message]:
        """KeyError for a request that is not the controller's."""
        decide = self._decisions.get(request.API_KEY) or self._load(request.API_KEY)
        try:
            return decide(self.state, request, context)
        except KafkaError as error:
            from ottla.controller.error_responses import error_response

            return Decision(error_response(request, error))

    def _load(self, api_key: int) -> Decide:
        module, function = DECISIONS[api_key].split(".")
        decide: Decide = getattr(importlib.import_module(f"ottla.controller.{module}"), function)
        self._decisions[api_key] = decide
        return decide
