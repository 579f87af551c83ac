"""Authorization of requests: `ottla.broker.apis` names the rule of every API, and the handlers do not depend on rules.

A rule wraps a handler. The rule removes what the principal may not access from the request, and the handler answers the
rest. Then the rule adds Kafka's error codes for the refused parts to the response. Without an authorizer, none of these
modules is loaded.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.broker.apis import API_TABLE
from ottla.broker.authorization.rules import RequestT, ResponseT, Rule
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


@cache
def rule_of(api_key: int, *, at_controller: bool) -> Rule:
    api = API_TABLE[ApiKey(api_key)]
    module, name = ((api.controller_rule if at_controller else None) or api.rule).split(".")
    rule: Rule = getattr(import_module(f"ottla.broker.authorization.{module}"), name)
    return rule


def guarded(
    context: RequestContext[NodePlane], request: RequestT, handle: Handle[RequestT, ResponseT]
) -> Answer[ResponseT]:
    """The handler's answer, as far as the principal may have it."""
    at_controller = context.listener in context.broker.config.controller_listener_names
    return rule_of(context.api_key, at_controller=at_controller)(context, request, handle)
