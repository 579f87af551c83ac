"""Formatting log directories, as `kafka-storage.sh format` does.

Every directory gets `meta.properties` and `bootstrap.checkpoint`; for a dynamic quorum the metadata directory also gets
the 0-0 checkpoint with kraft.version 1 and the first voters. `meta.properties` is written last: a directory that has it
is formatted. Nothing is touched unless everything can be formatted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.controller.bootstrap import bootstrap_records, write_bootstrap
from ottla.env.seams import Clock, RandomSource, Storage
from ottla.metadata.features import (
    DEPENDENCIES,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SUPPORTED_FEATURES,
    default_levels,
    metadata_version_from_str,
)
from ottla.metadata.meta_properties import (
    MetaProperties,
    read_meta_properties,
    verify_ensemble,
    write_meta_properties,
)
from ottla.metadata.records import FeatureLevelRecord, UserScramCredentialRecord
from ottla.model.ids import METADATA_DIR, NodeId, Uuid, new_uuid
from ottla.protocol.primitives import Message
from ottla.raft.snapshots import BOOTSTRAP_SNAPSHOT, encode_snapshot
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet


class FormatError(Exception):
    """Formatting is refused; the message is one clear line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRequest:
    cluster_id: str
    node_id: NodeId
    log_dirs: Sequence[str]
    metadata_log_dir: str | None = None
    """The first of the log directories when not given."""
    standalone: tuple[VoterEndpoint, ...] | None = None
    """--standalone: this node is the only voter, reachable at these controller listeners."""
    initial_controllers: VoterSet | None = None
    """--initial-controllers"""
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    ignore_formatted: bool = False
    extra_records: Sequence[Message] = ()
    """Further records that the first controller writes, such as SCRAM credentials."""
    describe_records: bool = False
    """Whether the first line describes the records that the first controller writes, in the format of Kafka's tool."""


def format_storage(storage: Storage, clock: Clock, random: RandomSource, request: FormatRequest) -> list[str]:
    """Format the directories that are not formatted yet. Returns the lines that Kafka's tool prints."""
    _check(request)
    metadata_dir = request.metadata_log_dir or request.log_dirs[0]
    version = _metadata_version(request)
    levels = _feature_levels(request, version)
    formatted = _formatted(storage, request)
    empty = sorted(log_dir for log_dir in {*request.log_dirs, metadata_dir} if log_dir not in formatted)
    if not empty:
        return ["All of the log directories are already formatted."]
    records = [*bootstrap_records(version, _bootstrap_levels(levels)), *request.extra_records]
    lines = [_described(records, version)] if request.describe_records else []
    for log_dir in empty:
        voters, directory_id, kind = _role(request, log_dir, metadata_dir, random)
        lines.append(f"Formatting {kind} {log_dir} with {METADATA_VERSION} {METADATA_VERSIONS[version]}.")
        storage.make_dirs(log_dir)
        write_bootstrap(storage, log_dir, records, clock.time_ms())
        if voters is not None:
            _write_voters(storage, log_dir, voters, clock.time_ms())
        properties = MetaProperties(cluster_id=request.cluster_id, node_id=request.node_id, directory_id=directory_id)
        write_meta_properties(storage, log_dir, properties, clock.time_ms())
    return lines


def _described(records: Sequence[Message], version: int) -> str:
    """In the format of Kafka's tool, without values that help to guess a password: build logs are kept."""
    shown = []
    for record in records:
        match record:
            case FeatureLevelRecord():
                words = f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
            case UserScramCredentialRecord():
                words = (
                    f"UserScramCredentialRecord(name='{record.name}', mechanism={record.mechanism}, salt=(hidden), "
                    f"storedKey=(hidden), serverKey=(hidden), iterations={record.iterations})"
                )
            case _:
                words = type(record).__name__
        shown.append(f"ApiMessageAndVersion({words} at version 0)")
    of = f"records=[{', '.join(shown)}], metadataVersionLevel={version}, source=format command"
    return f"Bootstrap metadata: BootstrapMetadata({of})"


def _check(request: FormatRequest) -> None:
    if request.node_id < 0:
        raise FormatError("You must specify a valid non-negative node ID.")
    if not request.cluster_id:
        raise FormatError("You must specify the cluster id.")
    if not request.log_dirs:
        raise FormatError("You must specify at least one directory to format")
    if request.standalone is not None and request.initial_controllers is not None:
        raise FormatError("--standalone and --initial-controllers cannot be used together")


def _metadata_version(request: FormatRequest) -> int:
    if METADATA_VERSION in request.features:
        if request.release_version is not None:
            raise FormatError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
        level = request.features[METADATA_VERSION]
        if level not in METADATA_VERSIONS:
            raise FormatError(f"No MetadataVersion with feature level {level}")
        return level
    if request.release_version is None:
        return LATEST_METADATA_VERSION
    metadata_version = metadata_version_from_str(request.release_version)
    if metadata_version is None:
        versions = ", ".join(METADATA_VERSIONS[level] for level in sorted(METADATA_VERSIONS))
        raise FormatError(
            f"Unknown metadata.version '{request.release_version}'. Supported metadata.version are: {versions}"
        )
    return metadata_version


def _feature_levels(request: FormatRequest, metadata_version: int) -> dict[str, int]:
    levels = default_levels(metadata_version)
    names = sorted(name for name in SUPPORTED_FEATURES if name != METADATA_VERSION)
    for name, level in request.features.items():
        if name == METADATA_VERSION:
            continue
        if name not in names:
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {', '.join(names)}")
        if level not in SUPPORTED_FEATURES[name]:
            raise FormatError(f"No feature:{name} with feature level {level}")
        needed = DEPENDENCIES.get((name, level))
        if needed is not None and metadata_version < needed[1]:
            raise FormatError(f"{name} could not be set to {level} because it depends on {needed[0]} level {needed[1]}")
        levels[name] = level
    levels[KRAFT_VERSION] = _kraft_version(request, levels.get(KRAFT_VERSION))
    return levels


def _kraft_version(request: FormatRequest, requested_level: int | None) -> int:
    dynamic = request.standalone is not None or request.initial_controllers is not None
    if requested_level is None or requested_level == int(dynamic):
        return int(dynamic)
    flags = "--standalone, --initial-controllers, or --no-initial-controllers"
    how = f"controller.quorum.voters is empty and one of the flags {flags} is used."
    if dynamic:
        raise FormatError(
            f"Cannot set kraft.version to {requested_level} if {how} For dynamic controllers support, try removing the "
            "--feature flag for kraft.version."
        )
    raise FormatError(
        f"Cannot set kraft.version to {requested_level} unless {how} For dynamic controllers support, try using one of "
        f"{flags} and removing controller.quorum.voters."
    )


def _bootstrap_levels(levels: dict[str, int]) -> dict[str, int]:
    """kraft.version is not a metadata record: it lives in the 0-0 checkpoint."""
    return {name: level for name, level in levels.items() if name != KRAFT_VERSION}


def _formatted(storage: Storage, request: FormatRequest) -> dict[str, MetaProperties]:
    ensemble = {}
    for log_dir in request.log_dirs:
        if storage.exists(log_dir) and not storage.is_dir(log_dir):
            raise FormatError(f"{log_dir} is not a directory")
        properties = read_meta_properties(storage, log_dir)
        if properties is not None:
            ensemble[log_dir] = properties
    verify_ensemble(ensemble, cluster_id=request.cluster_id, node_id=request.node_id)
    if ensemble and not request.ignore_formatted:
        raise FormatError(
            f"Log directory {min(ensemble)} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )
    return ensemble


def _role(
    request: FormatRequest, log_dir: str, metadata_dir: str, random: RandomSource
) -> tuple[VoterSet | None, Uuid, str]:
    """The voters to write there, the directory's id and Kafka's word for such a directory."""
    directory_id = new_uuid(random.token_bytes)
    if log_dir != metadata_dir:
        return None, directory_id, "data directory"
    if request.standalone is not None:
        voters = VoterSet((Voter(request.node_id, directory_id, request.standalone),))
        return voters, directory_id, "dynamic metadata voter directory"
    if request.initial_controllers is None:
        return None, directory_id, "metadata directory"
    own = request.initial_controllers.get(request.node_id)
    if own is None:
        return request.initial_controllers, directory_id, "dynamic metadata directory"
    return request.initial_controllers, own.directory_id, "dynamic metadata voter directory"


def _write_voters(storage: Storage, log_dir: str, voters: VoterSet, now_ms: int) -> None:
    metadata_dir = f"{log_dir}/{METADATA_DIR}"
    storage.make_dirs(metadata_dir)
    data = encode_snapshot((), epoch=0, last_contained_timestamp=now_ms, now_ms=now_ms, kraft_version=1, voters=voters)
    storage.write_atomic(f"{metadata_dir}/{BOOTSTRAP_SNAPSHOT.file_name()}", data)
