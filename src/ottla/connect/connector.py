"""What a connector is. One of your own is a class with one of these shapes: `connector.class: my_module:MySource`.

    class Ticks(Source):
        def poll(self, after):
            start = int((after or {}).get("n", 0))
            return [Change(topic="ticks", value={"n": n}, place={"n": n + 1}) for n in range(start, start + 10)]

The last record of a source carries its position (`place`). The runtime stores the position in the same transaction as
the records and passes it to the next `poll`, so nothing is read twice or lost. A sink gets rows and the `Work` that
they belong to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from ottla.connect.sender import Outgoing
from ottla.connect.sinks.base import Work

Place = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Change:
    """A record on its way: `value` and `key` are plain Python values until a converter writes them."""

    topic: str
    value: Any
    key: Any = None
    place: Place | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int = 0
    partition: int = -1
    offset: int = -1


class Source(ABC):
    raw_records: ClassVar[bool] = False
    """Keys and values are bytes unless the configuration names converters."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = config

    def begin(self, target: Mapping[str, str]) -> None:  # noqa: B027 - most have nothing to prepare
        """Before the first poll: the client settings of the cluster that the changes go to."""

    @abstractmethod
    def poll(self, after: Place | None) -> Sequence[Change]:
        """The next changes behind `after`; an empty list when there is nothing new."""

    def finished(self) -> bool:
        """Whether nothing will ever come again (a file that was read to its end)."""
        return False

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Give back what is open."""


class Sink(ABC):
    raw_records: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = config

    def begin(self, source: Mapping[str, str]) -> None:  # noqa: B027 - most have nothing to prepare
        """Before the first rows: the client settings of the cluster that they come from."""

    @abstractmethod
    def put(self, rows: pa.Table, work: Work) -> None:
        """All rows or none; work that was put before changes nothing."""

    def reached(self, application: str) -> int | None:  # noqa: ARG002 - for those that can
        """The version of the last work in the sink. None if the sink does not store it: then work may come again."""
        return None

    def keep(self) -> None:  # noqa: B027 - most store nothing that expires
        """Called every `offsets.keep.interval.ms`: stores progress again that would expire."""

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Give back what is open."""


class RecordSink(Sink):
    """A sink of whole records, not of rows: key, value, headers, partition and time."""

    def put(self, rows: pa.Table, work: Work) -> None:
        raise TypeError(f"{type(self).__name__} accepts records, not {rows.num_rows} rows of {work.application}")

    def topic(self, name: str, partitions: int) -> str:  # noqa: ARG002 - for those that make topics
        """What a topic that is read is called in the records."""
        return name

    @abstractmethod
    def put_records(self, records: Sequence[Outgoing], work: Work) -> None:
        """All records or none; work that was put before changes nothing."""
