"""A share session (KIP-932): the state of a member on one broker, and the requests that keep this state up to date.

No connection here: `ShareConsumer` sends the requests. A request names only what changed: partitions that are new, partitions
that are gone, and acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.model.ids import Uuid
from ottla.protocol.generated.share_acknowledge_request import AcknowledgementBatch as FinalBatch
from ottla.protocol.generated.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.generated.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

GAP, ACCEPT, RELEASE, REJECT = range(4)
"""GAP is for an offset without a record for the application: a control record, or a record that compaction removed."""
LAST_EPOCH = -1
_WAIT_MS = 400
_PARTITION_BYTES = 1 << 20
_BYTES = 1 << 24

Place = tuple[Uuid, int]
Marks = dict[int, int]
Batch = TypeVar("Batch")
Row = TypeVar("Row")


class ConsumerShareSession:
    """`epoch` counts the requests that the broker has taken; 0 opens the session."""

    def __init__(self, group: str, member: str) -> None:
        self._group, self._member = group, member
        self.epoch = 0
        self._places: set[Place] = set()
        self._marks: dict[Place, Marks] = {}

    def acknowledge(self, place: Place, offset: int, kind: int) -> None:
        self._marks.setdefault(place, {})[offset] = kind

    def has_marks_beside(self, places: Iterable[Place]) -> bool:
        """Whether records of other partitions than these wait for their acknowledgement."""
        return not self._marks.keys() <= set(places)

    def fetch(self, places: list[Place], limit: int) -> ShareFetchRequest:
        """The request for records of `places`, with the acknowledgements of these places."""
        marks = {place: self._marks.pop(place) for place in places if place in self._marks}
        named = [place for place in places if place not in self._places or place in marks]
        rows = _by_topic(
            named,
            lambda place: FetchPartition(
                place[1], _PARTITION_BYTES, _batches(marks.get(place, {}), AcknowledgementBatch)
            ),
        )
        gone = _by_topic(sorted(self._places.difference(places)), lambda place: place[1])
        self._places = set(places)
        return ShareFetchRequest(
            self._group, self._member, self.epoch, _WAIT_MS, 1, _BYTES, limit, min(limit, 500),
            topics=[FetchTopic(topic, listed) for topic, listed in rows.items()],
            forgotten_topics_data=[ForgottenTopic(topic, listed) for topic, listed in gone.items()],
        )  # fmt: skip

    def acknowledgements(self, *, last: bool) -> ShareAcknowledgeRequest:
        """All acknowledgements that wait; `last` ends the session, and the broker takes other records back."""
        marks, self._marks = self._marks, {}
        rows = _by_topic(marks, lambda place: AcknowledgePartition(place[1], _batches(marks[place], FinalBatch)))
        topics = [AcknowledgeTopic(topic, listed) for topic, listed in rows.items()]
        return ShareAcknowledgeRequest(self._group, self._member, LAST_EPOCH if last else self.epoch, topics=topics)

    def taken(self) -> None:
        """The broker has answered a request without an error."""
        self.epoch += 1


def _by_topic(places: Iterable[Place], row: Callable[[Place], Row]) -> dict[Uuid, list[Row]]:
    rows: dict[Uuid, list[Row]] = {}
    for place in places:
        rows.setdefault(place[0], []).append(row(place))
    return rows


def _batches(marks: Mapping[int, int], batch: Callable[[int, int, list[int]], Batch]) -> list[Batch]:
    """Neighbouring offsets of one kind are one batch."""
    spans: list[list[int]] = []
    for offset in sorted(marks):
        if spans and spans[-1][1] == offset - 1 and spans[-1][2] == marks[offset]:
            spans[-1][1] = offset
        else:
            spans.append([offset, offset, marks[offset]])
    return [batch(first, last, [kind]) for first, last, kind in spans]
