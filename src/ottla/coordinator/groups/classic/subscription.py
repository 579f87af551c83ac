"""The topics that the members of a consumer group subscribe to, read from the embedded consumer protocol.

Version 0 of the subscription is a prefix of all later versions: reading version 0 is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.primitives import DecodeError

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = Struct(">h")


def subscribed_topics(metadatas: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of all members; None when a subscription cannot be read."""
    topics: set[str] = set()
    for metadata in metadatas:
        if len(metadata) < _VERSION.size or _VERSION.unpack_from(metadata)[0] < 0:
            return None
        try:
            subscription, _ = ConsumerProtocolSubscription.decode(metadata, _VERSION.size, 0)
        except DecodeError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
