"""Who may ask what: every API's rule stands in `table`, what a rule does in `rules`, and the handlers know nothing of it.

A rule stands around a handler: it takes what the principal may not have out of the request, lets the handler answer the
rest, and puts Kafka's error codes for the refused parts into the response. Without an authorizer none of this is loaded.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization.rules import Handle
from ottla.broker.authorization.table import BROKER_RULES, CONTROLLER_RULES
from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode, KafkaError


def guarded(context: RequestContext, request: Any, handle: Handle) -> Any:
    """The handler's answer, as far as the principal may have it."""
    at_controller = context.listener in context.broker.config.controller_listener_names
    rule = (CONTROLLER_RULES if at_controller else BROKER_RULES).get(context.api_key)
    if rule is None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "There is no rule for this API: nobody may call it")
    return rule(context, request, handle)
