"""Whether a producer's bad records may go to the quarantine topic: decided here, at each produce.

The node writes them for the producer, so the producer needs WRITE on the quarantine topic as if it wrote there itself,
and CREATE if the topic is missing. A producer whose records all match needs nothing. The setting may be older than the
ACLs (or its topic may have changed since), so the ACLs are checked again here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.metadata.image import RESOURCE_TOPIC
from ottla.model.acls import Operation, ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.quarantine import MODE_SETTING, target_problem
from ottla.security.acls import CLUSTER_NAME

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane

_OFF = "off"


def quarantine_refusal(context: RequestContext[NodePlane], topic: str, target: str) -> KafkaError | None:
    """Why records of `topic` may not be put aside into `target` for this principal; None when they may."""
    problem = target_problem(topic, target)
    if problem is not None:
        return KafkaError(
            ErrorCode.INVALID_RECORD, f"Records do not match their schema and cannot be put aside: {problem}"
        )
    settings = context.broker.image.configs.get((RESOURCE_TOPIC, target), {})
    if settings.get(MODE_SETTING, _OFF) != _OFF:
        text = f"Records do not match their schema and cannot be put aside: {target} checks schemas itself; set its "
        return KafkaError(ErrorCode.INVALID_RECORD, f"{text}{MODE_SETTING} to {_OFF}")
    if not context.allowed(Operation.WRITE, ResourceType.TOPIC, target):
        text = (
            f"Records do not match their schema, and {context.principal} has no WRITE on the quarantine topic {target}"
        )
        return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
    if target not in context.broker.image.topics_by_name and not _may_create(context, target):
        text = f"Records do not match their schema, and {context.principal} has no CREATE for the quarantine topic {target}"
        return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
    return None


def _may_create(context: RequestContext[NodePlane], topic: str) -> bool:
    """As for a topic that Metadata creates: the node asks the controller in its own name."""
    on_cluster = context.allowed(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    return on_cluster or context.allowed(Operation.CREATE, ResourceType.TOPIC, topic)
