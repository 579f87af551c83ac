"""Metadata directories that Apache Kafka 4.3.1 wrote (golden/), copied to a folder that a test may change.

- static: controller.quorum.voters; topic t1 with two partitions, a kill -9, a restart, a clean stop, a restart, a clean stop.
- dynamic: formatted with --standalone, a snapshot every kilobyte; t1 created and deleted, t2 with added partitions and
  settings.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ottla.model.ids import Uuid, uuid_from_str
from ottla.raft.config import RaftConfig
from ottla.raft.node import RaftNode
from ottla.raft.voters import Voter, VoterSet
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import DiskStorage

GOLDEN = Path(__file__).with_name("golden")
DIRECTORY_IDS = {"static": "PL2BnaXca3yHBVhiMxF6HQ", "dynamic": "3hZsDY3YRI-JoPSDJjucEQ"}


def copied(kind: str, target: Path) -> Path:
    """The log directory; its `__cluster_metadata-0` is inside."""
    shutil.copytree(GOLDEN / kind, target / kind)
    return target / kind


def directory_id(kind: str) -> Uuid:
    return uuid_from_str(DIRECTORY_IDS[kind])


def raft_node(kind: str, log_dir: Path) -> RaftNode:
    config = RaftConfig(
        node_id=1,
        directory_id=directory_id(kind),
        static_voters=VoterSet((Voter(1),)) if kind == "static" else None,
    )
    return RaftNode(DiskStorage(), str(log_dir / "__cluster_metadata-0"), SystemClock(), config)
