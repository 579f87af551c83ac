"""What a connector is. One of your own is a class with one of these shapes: `connector.class: my_module:MySource`.

    class Ticks(Source):
        @abstractmethod
    def poll(self, after):
            start = int((after or {}).get("n", 0))
            return [Change(topic="ticks", key=None, value={"n": n}, place={"n": n + 1}) for n in range(start, start + 10)]

A source says with each record where it stands (`place`); the runtime keeps the last place in the same transaction as the
records and hands it back to `poll`, so nothing is read twice or lost. A sink is given rows with the work that they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

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
    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = config

    @abstractmethod
    def poll(self, after: Place | None) -> Sequence[Change]:
        """The next changes behind `after`; an empty list when there is nothing new."""

    def finished(self) -> bool:
        """Whether nothing will ever come again (a file that was read to its end)."""
        return False

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Give back what is open."""


class Sink(ABC):
    def __init__(self, config: Mapping[str, str]) -> None:
        self.config = config

    @abstractmethod
    def put(self, rows: pa.Table, work: Work) -> None:
        """All rows or none; work that was put before changes nothing."""

    def reached(self, application: str) -> int | None:  # noqa: ARG002 - for those that can
        """The version of the last work that is there; None when this sink cannot tell (then work may come again)."""
        return None

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Give back what is open."""
