"""One hash for the topics of a group: it changes when a topic appears, disappears, grows or moves racks.

The group's record stores the hash, so that a new coordinator notices a change that it missed (KIP-1101).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack

from ottla.coordinator.xxh3 import xxh3_64
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.ids import Uuid

_MAGIC = b"\x00"
_SIGN = 1 << 63


class TopicHashes:
    """Hashes of topics, remembered until the topic changes. Bounded by the topics that groups read."""

    def __init__(self) -> None:
        self._hashes: dict[Uuid, int] = {}

    def forget(self, topic_ids: Iterable[Uuid]) -> None:
        for topic_id in topic_ids:
            self._hashes.pop(topic_id, None)

    def clear(self) -> None:
        self._hashes.clear()

    def group_hash(self, topics: Iterable[str], image: MetadataImage) -> int:
        images = [topic for name in sorted(topics) if (topic := image.topics_by_name.get(name)) is not None]
        if not images:
            return 0
        return _signed(xxh3_64(b"".join(pack("<Q", self._topic_hash(topic, image)) for topic in images)))

    def _topic_hash(self, topic: TopicImage, image: MetadataImage) -> int:
        topic_hash = self._hashes.get(topic.id)
        if topic_hash is None:
            topic_hash = self._hashes[topic.id] = xxh3_64(_described(topic, image))
        return topic_hash


def _described(topic: TopicImage, image: MetadataImage) -> bytes:
    high, low = (int.from_bytes(half, "big") for half in (topic.id[:8], topic.id[8:]))
    pieces = [_MAGIC, pack("<QQ", high, low), _text(topic.name), pack("<i", len(topic.partitions))]
    for index in range(len(topic.partitions)):
        pieces.append(pack("<i", index))
        registration = topic.partitions.get(index)
        brokers = (image.brokers.get(node) for node in registration.replicas) if registration is not None else ()
        racks = sorted(broker.rack for broker in brokers if broker is not None and broker.rack)
        pieces += [pack("<i", len(rack)) + _text(rack) for rack in racks]
    return b"".join(pieces)


def _text(text: str) -> bytes:
    """UTF-16 units and how many they are."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + pack("<i", len(units) // 2)


def _signed(value: int) -> int:
    return value - (_SIGN << 1) if value & _SIGN else value
