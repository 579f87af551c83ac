"""What can be wrong with a quorum's files and settings. Each message is one clear line: it is all that a user sees."""

from __future__ import annotations


class RaftError(Exception):
    """The quorum cannot be what its files and settings say."""


class QuorumStateError(RaftError):
    """`quorum-state` is not a file that Kafka or Ottla wrote."""


class MetadataLogError(RaftError):
    """The metadata log cannot be used as it is; the message says which file and why."""


class SnapshotError(RaftError):
    """A snapshot that is not whole or not readable."""


class BatchTooLargeError(RaftError):
    """Records that must stay together are larger than a batch may be."""
