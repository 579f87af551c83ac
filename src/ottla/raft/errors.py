"""Errors in the files and settings of a quorum. A user sees only the message: one clear line."""

from __future__ import annotations


class RaftError(Exception):
    """The files, the settings or the messages of the quorum contradict each other."""


class QuorumStateError(RaftError):
    """`quorum-state` is not a file that Kafka or Ottla wrote."""


class MetadataLogError(RaftError):
    """The metadata log is damaged; the message names the file and the reason."""


class SnapshotError(RaftError):
    """A snapshot is incomplete or damaged."""


class BatchTooLargeError(RaftError):
    """Records that must stay in one batch exceed the size of a batch."""
