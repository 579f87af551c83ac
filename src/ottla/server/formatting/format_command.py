"""`ottla storage format` and `info`: from a properties file and flags to formatted directories."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ottla.controller.format import FormatRequest
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.load import load, unknown_lines
from ottla.metadata.meta_properties import MetaProperties, MetaPropertiesError, read_meta_properties
from ottla.model.ids import uuid_from_str, uuid_to_str
from ottla.protocol.primitives import Message
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.runtime.disk import DiskStorage
from ottla.server.errors import StartupError
from ottla.server.formatting.storage import run_format, voter_endpoints
from ottla.server.run import exit_code, read_properties

_VOTER = re.compile(r"(\d+)@(.+):(\d+):([A-Za-z0-9_-]{22})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    cluster_id: str
    standalone: bool = False
    no_initial_controllers: bool = False
    initial_controllers: str | None = None
    release_version: str | None = None
    features: tuple[str, ...] = ()
    scram: tuple[str, ...] = ()
    """--add-scram"""
    ignore_formatted: bool = False
    as_kafka: bool = False
    """As Kafka's own tool: any text is a cluster's id, and the first records are printed."""


def format_from_file(file: Path, options: FormatOptions, prefix: str = "ottla: ", *, strict: bool = False) -> int:
    """`prefix` precedes an error message; Kafka's own tool has none. `strict`: a property that Kafka does not have is
    an error.
    """

    def work(config: BrokerConfig) -> tuple[list[str], int]:
        if not options.as_kafka:
            for line in unknown_lines(config.layers.static):
                print(f"{prefix}{file}: warning: {line}", file=sys.stderr)
        return run_format(config, format_request(config, options)), 0

    return _with_config(file, work, prefix, strict=strict)


def info_from_file(file: Path, prefix: str = "ottla: ") -> int:
    return _with_config(file, _info, prefix)


def _with_config(
    file: Path, work: Callable[[BrokerConfig], tuple[list[str], int]], prefix: str, *, strict: bool = False
) -> int:
    def command() -> int:
        lines, code = work(load(read_properties(file), strict=strict))
        for line in lines:
            print(line)
        return code

    return exit_code(file, command, prefix)


def format_request(config: BrokerConfig, options: FormatOptions) -> FormatRequest:
    """The directories to format. Raises StartupError for flags that do not fit the configuration."""
    if not options.as_kafka:
        _check_cluster_id(options.cluster_id)
    dynamic = options.standalone or options.initial_controllers is not None
    if config.is_controller:
        if config.voters and (dynamic or options.no_initial_controllers):
            raise StartupError(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
                "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
                "controller.quorum.bootstrap.servers instead."
            )
        if not config.voters and not dynamic and not options.no_initial_controllers:
            raise StartupError(
                "Because controller.quorum.voters is not set on this controller, you must specify one of the "
                "following: --standalone, --initial-controllers, or --no-initial-controllers."
            )
    elif options.standalone:
        raise StartupError("You can only use --standalone on a controller.")
    return FormatRequest(
        cluster_id=options.cluster_id,
        node_id=config.node_id,
        log_dirs=list(config.data_dirs),
        metadata_log_dir=config.metadata_log_dir,
        standalone=voter_endpoints(config) if options.standalone else None,
        initial_controllers=_voters(config, options.initial_controllers),
        release_version=options.release_version,
        features=dict(map(_feature, options.features)),
        extra_records=_scram_records(options.scram),
        ignore_formatted=options.ignore_formatted,
        describe_records=options.as_kafka,
    )


def _check_cluster_id(text: str) -> None:
    try:
        uuid_from_str(text)
    except ValueError as error:
        raise StartupError(f"cluster id: {error}; `ottla storage random-uuid` prints a new id") from error


def _voters(config: BrokerConfig, text: str | None) -> VoterSet | None:
    if text is None:
        return None
    listener = config.controller_listener_names[0]
    voters: list[Voter] = []
    for item in text.split(","):
        if "@" not in item:
            raise StartupError("No @ found in dynamic voter string.")
        match = _VOTER.fullmatch(item.strip())
        if match is None:
            raise StartupError(f"--initial-controllers: {item!r} is not ID@HOST:PORT:DIRECTORY_ID")
        node_id, host, port, directory = match.groups()
        endpoint = VoterEndpoint(listener, host, int(port))
        voters.append(Voter(int(node_id), uuid_from_str(directory), (endpoint,)))
    return VoterSet(tuple(voters))


def _scram_records(texts: tuple[str, ...]) -> list[Message]:
    if not texts:
        return []
    from ottla.server.formatting.first_users import ScramArgumentError, scram_record

    try:
        return [scram_record(text) for text in texts]
    except ScramArgumentError as error:
        raise StartupError(str(error)) from None


def _feature(text: str) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    if not separator:
        raise StartupError(f"Can't parse feature=level string {text}: equals sign not found.")
    if not level.strip().isdecimal():
        raise StartupError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    return name.strip(), int(level)


def _info(config: BrokerConfig) -> tuple[list[str], int]:
    """The output of Kafka's tool: the directories, their common properties, and the problems of any directory."""
    directories = list(dict.fromkeys([*config.data_dirs, config.metadata_dir]))
    meta_properties: dict[str, MetaProperties] = {}
    problems: list[str] = []
    for directory in directories:
        try:
            properties = read_meta_properties(DiskStorage(), directory)
        except (MetaPropertiesError, OSError) as error:
            problems.append(str(error))
            continue
        if properties is not None:
            meta_properties[directory] = properties
        else:
            problems.append(f"{directory} {'is not formatted.' if Path(directory).is_dir() else 'does not exist'}")
    lines = []
    if meta_properties:
        lines.append("Found log directories:" if len(meta_properties) > 1 else "Found log directory:")
        lines += [f"  {directory}" for directory in sorted(meta_properties)]
        lines.append("")
        metadata = meta_properties[min(meta_properties)]
        identity = f"directory.id={uuid_to_str(metadata.directory_id)}, " if metadata.directory_id is not None else ""
        lines += [
            f"Found metadata: {{cluster.id={metadata.cluster_id}, {identity}node.id={metadata.node_id}, version=1}}",
            "",
        ]
    if problems:
        lines.append("Found problems:" if len(problems) > 1 else "Found problem:")
        lines += [f"  {problem}" for problem in problems]
        lines.append("")
    return lines, int(bool(problems))
