"""kraft.version and the voter set of the log, by offset, so that a truncation also restores the former values.

The last record of the log counts, committed or not: a voter set is in force as soon as it is appended.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.model.ids import Offset
from ottla.protocol.generated.k_raft_version_record import KRaftVersionRecord
from ottla.protocol.generated.voters_record import VotersRecord
from ottla.protocol.primitives import Message
from ottla.raft.control import control_messages
from ottla.raft.snapshots import BOOTSTRAP_SNAPSHOT, Snapshot, SnapshotId
from ottla.raft.voters import VoterSet

_BEFORE_THE_LOG = -1


class QuorumHistory:
    def __init__(self, static_voters: VoterSet | None) -> None:
        self._static = static_voters
        self._versions: list[tuple[int, int]] = []
        self._voters: list[tuple[int, VoterSet]] = []

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0

    @property
    def voters(self) -> VoterSet:
        if self._voters:
            return self._voters[-1][1]
        return self._static or VoterSet(())

    @property
    def in_log(self) -> bool:
        """Whether the log, or a snapshot of it, holds the voters. The 0-0 checkpoint of a format is not replicated:
        the first leader repeats its voters in the log.
        """
        return bool(self._voters) and self._voters[-1][0] != _BEFORE_THE_LOG

    @property
    def last_voters_offset(self) -> int:
        """Where the newest voter set stands; -1 when it is not in the log."""
        return self._voters[-1][0] if self._voters else _BEFORE_THE_LOG

    def voters_offsets_from(self, offset: int) -> list[int]:
        """Where the voter sets at or after `offset` stand: with the high watermark, those that are not committed."""
        return [voters_offset for voters_offset, _ in self._voters if voters_offset >= offset]

    def at(self, end_offset: int) -> tuple[int, VoterSet]:
        """kraft.version and voters below `end_offset`: the values for a snapshot with that end offset."""
        version = next((level for offset, level in reversed(self._versions) if offset < end_offset), 0)
        voters = next((voter_set for offset, voter_set in reversed(self._voters) if offset < end_offset), self._static)
        return version, voters or VoterSet(())

    def load_snapshot(self, snapshot: Snapshot, snapshot_id: SnapshotId) -> None:
        """Replace all values by those of the snapshot."""
        offset = _BEFORE_THE_LOG if snapshot_id == BOOTSTRAP_SNAPSHOT else snapshot_id.end_offset - 1
        self._versions = [(offset, snapshot.kraft_version)] if snapshot.kraft_version else []
        self._voters = [(offset, snapshot.voters)] if snapshot.voters is not None else []

    def load_batch(self, data: bytes | bytearray | memoryview) -> bool:
        """A control batch was appended. Returns whether it changed the voters."""
        return self.load(control_messages(data))

    def load(self, messages: Iterable[tuple[Offset, Message]]) -> bool:
        """Control records were appended. Returns whether they changed the voters."""
        changed = False
        for offset, message in messages:
            if isinstance(message, KRaftVersionRecord):
                self._versions.append((offset, message.k_raft_version))
            elif isinstance(message, VotersRecord):
                self._voters.append((offset, VoterSet.from_record(message)))
                changed = True
        return changed

    def truncate(self, end_offset: int) -> None:
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]

    def forget_before(self, offset: int) -> None:
        """Drop values below `offset` that later values have replaced: no truncation reaches them."""
        while len(self._versions) > 1 and self._versions[1][0] < offset:
            self._versions.pop(0)
        while len(self._voters) > 1 and self._voters[1][0] < offset:
            self._voters.pop(0)
