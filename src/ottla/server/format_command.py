"""`ottla storage format` and `info`: from a properties file and flags to formatted directories."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ottla.controller.format import FormatRequest
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.load import load
from ottla.metadata.meta_properties import MetaPropertiesError, read_meta_properties
from ottla.model.ids import uuid_from_str, uuid_to_str
from ottla.protocol.primitives import Message
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.runtime.disk import DiskStorage
from ottla.server.errors import StartupError
from ottla.server.run import exit_code, read_properties
from ottla.server.storage import run_format, voter_endpoints

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


def format_from_file(file: Path, options: FormatOptions) -> int:
    return _with_config(file, lambda config: run_format(config, format_request(config, options)))


def info_from_file(file: Path) -> int:
    return _with_config(file, _info)


def _with_config(file: Path, work: Callable[[BrokerConfig], list[str]]) -> int:
    def command() -> int:
        for line in work(load(read_properties(file))):
            print(line)
        return 0

    return exit_code(file, command)


def format_request(config: BrokerConfig, options: FormatOptions) -> FormatRequest:
    """What to format, or StartupError for flags that do not fit the configuration."""
    _check_cluster_id(options.cluster_id)
    dynamic = options.standalone or options.initial_controllers is not None
    if config.is_controller:
        if config.voters and (dynamic or options.no_initial_controllers):
            raise StartupError(
                "controller.quorum.voters is set: a static quorum takes neither --standalone nor --initial-controllers"
            )
        if not config.voters and not dynamic and not options.no_initial_controllers:
            raise StartupError(
                "controller.quorum.voters is not set on this controller: give --standalone, --initial-controllers "
                "or --no-initial-controllers"
            )
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
    )


def _check_cluster_id(text: str) -> None:
    try:
        uuid_from_str(text)
    except ValueError as error:
        raise StartupError(f"cluster id: {error}; `ottla storage random-uuid` makes one") from error


def _voters(config: BrokerConfig, text: str | None) -> VoterSet | None:
    if text is None:
        return None
    listener = config.controller_listener_names[0]
    voters: list[Voter] = []
    for item in text.split(","):
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
    from ottla.server.first_users import ScramArgumentError, scram_record

    try:
        return [scram_record(text) for text in texts]
    except ScramArgumentError as error:
        raise StartupError(f"--add-scram: {error}") from None


def _feature(text: str) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    if not separator or not level.strip().isdecimal():
        raise StartupError(f"--feature {text!r} is not NAME=LEVEL")
    return name.strip(), int(level)


def _info(config: BrokerConfig) -> list[str]:
    directories = list(dict.fromkeys([*config.data_dirs, config.metadata_dir]))
    found = {}
    lines = ["Found log directories:" if len(directories) > 1 else "Found log directory:"]
    lines += [f"  {directory}" for directory in directories]
    for directory in directories:
        try:
            properties = read_meta_properties(DiskStorage(), directory)
        except (MetaPropertiesError, OSError) as error:
            raise StartupError(str(error)) from error
        if properties is not None:
            found[directory] = properties
    lines.append("")
    missing = [directory for directory in directories if directory not in found]
    for directory, properties in found.items():
        identity = uuid_to_str(properties.directory_id) if properties.directory_id is not None else "none"
        lines.append(
            f"{directory}: cluster.id={properties.cluster_id} node.id={properties.node_id} directory.id={identity}"
        )
    if missing:
        raise StartupError("\n".join([*lines, *(f"{directory} is not formatted" for directory in missing)]))
    return lines
