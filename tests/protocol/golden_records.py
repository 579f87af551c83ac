"""The records that real Kafka wrote into its internal logs, as (message name, version, bytes), for record_golden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.protocol.message_values import message_class

from ottla.protocol.generated.index import METADATA_RECORDS, MODULES
from ottla.protocol.primitives import read_uvarint
from ottla.protocol.records import iterate_batches, iterate_records

_CONTROL = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
_COORDINATORS = {"__consumer_offsets": "Group", "__transaction_state": "Transaction", "__share_group_state": "Share"}

Golden = tuple[str, int, bytes]


def walk(data_dir: Path) -> Iterator[Golden]:
    for path in sorted((data_dir / "__cluster_metadata-0").glob("0*.*")):
        if path.suffix in (".log", ".checkpoint"):
            yield from metadata_records(path.read_bytes())
    for folder in sorted(data_dir.iterdir()):
        topic = folder.name.rpartition("-")[0]
        if topic in _COORDINATORS:
            for path in folder.glob("*.log"):
                yield from coordinator_records(path.read_bytes(), topic)
    yield from quorum_state(data_dir / "__cluster_metadata-0" / "quorum-state")


def metadata_records(raw: bytes) -> Iterator[Golden]:
    for pos, header in iterate_batches(raw):
        for record in iterate_records(raw, pos):
            if record.value is None:
                continue
            if header.is_control:
                kind = int.from_bytes((record.key or b"")[2:4], "big")
                yield _CONTROL[kind], int.from_bytes(record.value[:2], "big"), bytes(record.value)
                continue
            frame, at = read_uvarint(record.value, 0)
            key, at = read_uvarint(record.value, at)
            version, at = read_uvarint(record.value, at)
            if frame != 1:
                raise ValueError(f"frame version {frame}")
            yield METADATA_RECORDS[key], version, bytes(record.value[at:])


def coordinator_records(raw: bytes, topic: str) -> Iterator[Golden]:
    """The key's first int16 is its type (the schema's api key, and no version: keys have only version 0)."""
    for pos, header in iterate_batches(raw):
        if header.is_control:
            continue
        for record in iterate_records(raw, pos):
            key = bytes(record.key or b"")
            kind = int.from_bytes(key[:2], "big")
            name = coordinator_name(topic, kind)
            yield name + "Key", 1 if name == "LegacyOffsetCommit" else 0, key[2:]
            if record.value is not None:
                yield name + "Value", int.from_bytes(record.value[:2], "big"), bytes(record.value[2:])


def coordinator_name(topic: str, kind: int) -> str:
    owner = _COORDINATORS[topic]
    for name in MODULES:
        if name.endswith("Key") and kind == message_class(name).API_KEY and owner_of(name) == owner:
            return name.removesuffix("Key")
    raise ValueError(f"{topic}: no record of type {kind}")


def owner_of(name: str) -> str:
    if name.startswith("TransactionLog"):
        return "Transaction"
    return "Share" if name.startswith(("ShareSnapshot", "ShareUpdate")) else "Group"


def quorum_state(path: Path) -> Iterator[Golden]:
    """The file is JSON with the schema's field names; its data_version is the version. Kept as the file's own text."""
    text = path.read_bytes().strip()
    yield "QuorumStateData", int(json.loads(text)["data_version"]), text
