"""What every kind of group has in common: the questions of listing, offsets and expiry.

A kind is a folder of its own (`classic`, `consumer`, ...), with its group, its records and its requests. Nothing here
imports a kind; a caller that needs a kind checks the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import ClassVar, TypeAlias

from ottla.coordinator.groups.offset_store import CommittedOffset
from ottla.coordinator.records import CoordinatorRecord
from ottla.model.ids import Uuid

PartitionCheck: TypeAlias = Callable[[str, Uuid, int], None]
"""Topic name, topic id, partition.

Raises KafkaError when the member may not commit to the partition: the whole commit fails.
"""


class GroupKind(Enum):
    """As ListGroups names it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Group(ABC):
    kind: ClassVar[GroupKind]
    expires: ClassVar[bool] = True
    """Whether an empty group of this kind without offsets is deleted automatically."""
    group_id: str
    protocol_type: str | None

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As ListGroups and the tools show it."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """No members: the group may be deleted, and a group of a different kind may replace it."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool: ...

    @abstractmethod
    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, version: int, transactional: bool = False
    ) -> PartitionCheck | None:
        """KafkaError unless this member may commit now; a check to ask for each partition where that decides."""

    @abstractmethod
    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None: ...

    @abstractmethod
    def validate_offset_delete(self) -> None: ...

    @abstractmethod
    def validate_delete(self) -> None: ...

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group, its offsets aside."""

    @abstractmethod
    def unused_since(self, offset: CommittedOffset) -> int | None:
        """From when its retention counts, in epoch milliseconds; None: not as long as the group is like this."""
