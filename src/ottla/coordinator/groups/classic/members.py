"""A member of a classic group: its protocols, its assignment, and its parked requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.coordinator.decisions import Waiter

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata of the protocols that a member supports, in its order of preference."""

EMPTY_ASSIGNMENT = b""


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = EMPTY_ASSIGNMENT
    join_waiter: Waiter | None = field(default=None, repr=False)
    sync_waiter: Waiter | None = field(default=None, repr=False)
    is_new: bool = False
    """The member's first JoinGroup has not been answered: the member cannot send heartbeats yet."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_waiter is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A member with a parked request is alive.

        The exception is a new member, whose client may have gone unnoticed.
        """
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise LookupError(f"member {self.member_id} does not support the protocol {protocol_name!r}")

    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)
