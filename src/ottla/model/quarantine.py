"""Which topic may receive the records that a topic puts aside (`ottla.schema.quarantine.topic`).

The node writes those records for the producer, so the right to choose the topic must not be a right to write anywhere.
A quarantine topic is never one of the cluster's own topics and never the topic itself. The controller (when the setting
changes) and the broker (at each produce) decide who needs WRITE on the quarantine topic.
"""

from __future__ import annotations

from ottla.model.topic_names import is_topic_name

MODE_SETTING = "ottla.schema.validation"
TOPIC_SETTING = "ottla.schema.quarantine.topic"
QUARANTINE = "quarantine"
_OWN_PREFIX = "__"
"""Names of the cluster's own topics begin so: __consumer_offsets, __transaction_state, __ottla_audit, __cluster_metadata."""


def quarantine_topic(topic: str, setting: str) -> str:
    """Where the records of `topic` go; `setting` is the value of `ottla.schema.quarantine.topic`."""
    return setting or f"{topic}.quarantine"


def target_problem(topic: str, target: str) -> str | None:
    """Why `target` may not receive records of `topic`, whatever the principal; None when it may."""
    if not is_topic_name(target):
        return f"{TOPIC_SETTING}: {target[:60]!r} is not a name that a topic can have"
    if target.startswith(_OWN_PREFIX):
        return f"{TOPIC_SETTING}: {target} is a topic of the cluster itself; name a topic that does not begin with __"
    if target == topic:
        return f"{TOPIC_SETTING}: {target} cannot be its own quarantine; leave the setting out for {topic}.quarantine"
    return None
