"""`quorum-state`: the epoch, the leader and the vote of this replica, as one line of JSON.

The file is synced before the node acts on its content: a vote that a restart forgets may elect two leaders. Version 0
belongs to kraft.version 0 (static voters), version 1 to kraft.version 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.env.seams import Storage
from ottla.model.ids import NO_NODE, ZERO_UUID, NodeId, Uuid, uuid_from_str, uuid_to_str
from ottla.raft.errors import QuorumStateError
from ottla.raft.voters import ReplicaKey

FILE_NAME = "quorum-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    leader_epoch: int = 0
    leader_id: NodeId = NO_NODE
    voted_id: NodeId = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID

    @classmethod
    def of(cls, epoch: int, leader_id: NodeId, voted: ReplicaKey | None) -> QuorumState:
        if voted is None:
            return cls(leader_epoch=epoch, leader_id=leader_id)
        return cls(leader_epoch=epoch, leader_id=leader_id, voted_id=voted.id, voted_directory_id=voted.directory_id)

    @property
    def voted(self) -> ReplicaKey | None:
        return None if self.voted_id == NO_NODE else ReplicaKey(self.voted_id, self.voted_directory_id)


def load_quorum_state(storage: Storage, log_dir: str) -> QuorumState | None:
    """The stored state; None before the first election of this replica."""
    path = f"{log_dir}/{FILE_NAME}"
    if not storage.exists(path):
        return None
    try:
        raw = json.loads(storage.read_bytes(path))
        version = int(raw["data_version"])
        if version not in (0, 1):
            raise QuorumStateError(f"{path} has data_version {version}; 0 and 1 are supported")
        return QuorumState(
            leader_epoch=int(raw["leaderEpoch"]),
            leader_id=int(raw["leaderId"]),
            voted_id=int(raw["votedId"]),
            voted_directory_id=uuid_from_str(raw["votedDirectoryId"]) if version == 1 else ZERO_UUID,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise QuorumStateError(
            f"{path} is not a quorum state: {error}. Restore the file from a copy; a single controller may start "
            "without the file"
        ) from error


def store_quorum_state(
    storage: Storage, log_dir: str, state: QuorumState, *, kraft_version: int, voters: Iterable[NodeId]
) -> None:
    raw: dict[str, object] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
    }
    if kraft_version == 0:
        raw = {"clusterId": "", **raw, "appliedOffset": 0, "currentVoters": [{"voterId": voter} for voter in voters]}
    else:
        raw["votedDirectoryId"] = uuid_to_str(state.voted_directory_id)
    raw["data_version"] = min(kraft_version, 1)
    data = json.dumps(raw, separators=(",", ":")).encode()
    storage.write_atomic(f"{log_dir}/{FILE_NAME}", data)
