"""Applies committed metadata to the published image, then calls every subscriber.

Records reach the published image only when they are below the high watermark. Subscribers run at once, in order of
subscription, on the caller's thread, with the delta and the image after the delta. A delta ends where no metadata
transaction is open, so no subscriber sees half of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.replay import replay_all
from ottla.protocol.primitives import Message

Subscriber = Callable[[MetadataDelta, MetadataImage], None]


class MetadataPublisher:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self.offset = -1
        """The last offset that is in the image."""
        self.epoch = 0
        self._subscribers: list[Subscriber] = []
        self._delta = MetadataDelta()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` for every delta; the present image comes first, as a delta with `reloaded`."""
        self._subscribers.append(subscriber)
        if self.offset >= 0:
            subscriber(MetadataDelta(reloaded=True), self.image)

    def load(self, image: MetadataImage, last_offset: int, epoch: int) -> None:
        """Replace the image: at start, or by a snapshot that replaced the log. The delta names the topics that the
        snapshot no longer has, so that subscribers drop them; subscribers check all other objects again."""
        deleted = {topic.id: topic for topic in self.image.topics_by_id.values() if topic.id not in image.topics_by_id}
        self.image = image
        self._delta = MetadataDelta(reloaded=True, topics_deleted=deleted)
        self.committed((), last_offset, epoch)

    def committed(self, records: Iterable[Message], last_offset: int, epoch: int) -> None:
        """Apply a committed batch; publish the changes unless a metadata transaction is open."""
        replay_all(self.image, self._delta, records)
        self.offset = last_offset
        self.epoch = epoch
        if self.image.transaction is not None or self._delta.empty:
            return
        delta, self._delta = self._delta, MetadataDelta()
        for subscriber in list(self._subscribers):
            subscriber(delta, self.image)
