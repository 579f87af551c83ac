"""`meta.properties` in every log directory: the ids of its cluster, its node and the directory itself.

A directory without the file is not formatted. The directories of a node have the same cluster and node ids and different
directory ids. A directory id never changes, because the cluster's metadata refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ottla.env.config.properties import MalformedEscape, parse_properties
from ottla.env.seams import Storage
from ottla.model.ids import NodeId, Uuid, uuid_from_str, uuid_to_str

FILE_NAME = "meta.properties"
_RESERVED = 100


class MetaPropertiesError(Exception):
    """A directory does not belong to this node; the message is one clear line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    cluster_id: str
    node_id: NodeId
    directory_id: Uuid | None = None
    """None in a directory that a Kafka before 3.7 formatted."""


def read_meta_properties(storage: Storage, log_dir: str) -> MetaProperties | None:
    """The content of the file; None for a directory that is missing or not formatted."""
    path = f"{log_dir}/{FILE_NAME}"
    if not storage.exists(path):
        return None
    try:
        values = parse_properties(storage.read_bytes(path).decode("latin-1"))
    except MalformedEscape as error:
        raise MetaPropertiesError(f"{path}: {error}") from error
    version = values.get("version", "0")
    if version not in ("0", "1"):
        raise MetaPropertiesError(f"{path}: Unknown meta.properties version number {version}")
    # Kafka reads broker.id only in files of version 0 (from ZooKeeper's time), and node.id only in later files.
    id_name = "broker.id" if version == "0" else "node.id"
    for name in ("cluster.id", id_name):
        if name not in values:
            raise MetaPropertiesError(f"{path}: {name} was not found.")
    node_id = values[id_name]
    if not node_id.isdecimal():
        raise MetaPropertiesError(f"{path}: Unable to read {node_id!r} as a base-10 number.")
    directory = values.get("directory.id")
    try:
        directory_id = None if directory is None else uuid_from_str(directory)
    except ValueError as error:
        raise MetaPropertiesError(f"{path}: Unable to read directory.id as a Uuid: {error}") from error
    return MetaProperties(cluster_id=values["cluster.id"], node_id=int(node_id), directory_id=directory_id)


def write_meta_properties(storage: Storage, log_dir: str, properties: MetaProperties, now_ms: int) -> None:
    written = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
    lines = ["#", f"#{written:%a %b %d %H:%M:%S UTC %Y}", f"node.id={properties.node_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_str(properties.directory_id)}")
    lines += ["version=1", f"cluster.id={properties.cluster_id}"]
    storage.write_atomic(f"{log_dir}/{FILE_NAME}", ("\n".join(lines) + "\n").encode("latin-1"))


def verify_ensemble(
    properties_by_dir: dict[str, MetaProperties], *, cluster_id: str | None = None, node_id: NodeId | None = None
) -> None:
    """Refuse directories of a different cluster or node, and directory ids that are reserved or used twice."""
    directories: dict[Uuid, str] = {}
    for log_dir, properties in sorted(properties_by_dir.items()):
        path = f"{log_dir}/{FILE_NAME}"
        cluster_id = cluster_id or properties.cluster_id
        node_id = properties.node_id if node_id is None else node_id
        if properties.cluster_id != cluster_id:
            raise MetaPropertiesError(
                f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {properties.cluster_id}"
            )
        if properties.node_id != node_id:
            raise MetaPropertiesError(
                f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in {path}. If you moved "
                "your data, make sure your configured node id matches. If you intend to create a new node, you should "
                "remove all data in your data directories."
            )
        directory_id = properties.directory_id
        if directory_id is None:
            continue
        if int.from_bytes(directory_id, "big") < _RESERVED:
            raise MetaPropertiesError(f"Invalid reserved directory ID {uuid_to_str(directory_id)} found in {log_dir}")
        if directory_id in directories:
            raise MetaPropertiesError(
                f"Duplicate directory ID {uuid_to_str(directory_id)} found. It was the ID of "
                f"{directories[directory_id]}, but also of {log_dir}"
            )
        directories[directory_id] = log_dir


def load_ensemble(
    storage: Storage, log_dirs: Iterable[str], *, metadata_log_dir: str, node_id: NodeId
) -> dict[str, MetaProperties]:
    """The properties of each log directory at the start of a server. All directories must be formatted."""
    properties_by_dir = {}
    for log_dir in dict.fromkeys([metadata_log_dir, *log_dirs]):
        properties = read_meta_properties(storage, log_dir)
        if properties is None:
            raise MetaPropertiesError(
                f"No `meta.properties` found in {log_dir} (have you run `ottla storage format` to format the "
                "directory?)"
            )
        properties_by_dir[log_dir] = properties
    verify_ensemble(properties_by_dir, node_id=node_id)
    return properties_by_dir


def complete_directory_ids(
    storage: Storage, properties_by_dir: dict[str, MetaProperties], new_directory_id: Callable[[], Uuid], now_ms: int
) -> dict[str, MetaProperties]:
    """Give an id to each directory that an older Kafka formatted without an id, as Kafka does at its start."""
    completed = dict(properties_by_dir)
    for log_dir, properties in properties_by_dir.items():
        if properties.directory_id is None:
            completed[log_dir] = replace(properties, directory_id=new_directory_id())
            write_meta_properties(storage, log_dir, completed[log_dir], now_ms)
    return completed
