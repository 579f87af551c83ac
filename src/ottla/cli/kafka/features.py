"""kafka-features: the cluster's feature levels, seen and changed."""

from __future__ import annotations

import sys
from argparse import Namespace

from ottla.cli.kafka.admin import REFUSED, command_properties_of, open_cluster
from ottla.cli.kafka.arguments import ArgumentError, ToolParser
from ottla.cli.kafka.options import Exit
from ottla.cli.kafka.release_features import (
    ReleaseError,
    dependencies_lines,
    feature_and_level,
    mapping_lines,
    release_levels,
)
from ottla.client.cluster import Cluster
from ottla.client.errors import error_of
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSIONS
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.api_versions_response import ApiVersionsResponse

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def main(arguments: list[str]) -> int:
    try:
        parsed = _parser().parse(arguments)
        return _run(parsed)
    except Exit as end:
        return end.code
    except ArgumentError as reason:
        print(f"Command line error: {reason}. Type --help for help.", file=sys.stderr)
    except (*REFUSED, ReleaseError) as reason:
        print(reason, file=sys.stderr)
    return 1


def _parser() -> ToolParser:
    parser = ToolParser("kafka-features", "This tool manages feature flags in Kafka.", quiet=True, help_code=0)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bootstrap-server", help="Brokers, as HOST:PORT,...")
    where.add_argument("--bootstrap-controller", help="Controllers, as HOST:PORT,...")
    parser.add_argument("--command-config", help="A file with the client's properties.")
    commands = parser.commands()
    describe = parser.command(commands, "describe", "Show the features of a cluster.")
    describe.add_argument("--node-id", type=int, help="Id of the node to ask.")
    for name in ("upgrade", "downgrade"):
        command = parser.command(commands, name, f"{name.capitalize()} features.")
        command.add_argument("--metadata", help="DEPRECATED: level of metadata.version.")
        command.add_argument("--feature", action="append", default=[], help="NAME=LEVEL; may be repeated.")
        command.add_argument("--release-version", help="Release whose feature levels to use.")
        command.add_argument("--dry-run", action="store_true", help="Only check.")
        if name == "downgrade":
            command.add_argument("--unsafe", action="store_true", help="Allow a change that loses metadata.")
    disable = parser.command(commands, "disable", "Disable features: the same as level 0.")
    disable.add_argument("--feature", action="append", default=[], help="NAME; may be repeated.")
    disable.add_argument("--unsafe", action="store_true", help="Allow a change that loses metadata.")
    disable.add_argument("--dry-run", action="store_true", help="Only check.")
    mapping = parser.command(commands, "version-mapping", "Show the feature levels of a release.")
    mapping.add_argument("--release-version", help="The release, such as 4.3.")
    needed = parser.command(
        commands, "feature-dependencies", "Show the levels of other features that a feature level requires."
    )
    needed.add_argument("--feature", action="append", required=True, help="NAME=LEVEL; may be repeated.")
    return parser


def _run(parsed: Namespace) -> int:
    if parsed.command == "version-mapping":
        print("\n".join(mapping_lines(parsed.release_version)))
        return 0
    if parsed.command == "feature-dependencies":
        for line in dependencies_lines(parsed.feature):
            print(line)
        return 0
    bootstrap = parsed.bootstrap_controller or parsed.bootstrap_server
    if bootstrap is None:
        raise ArgumentError("You must specify either --bootstrap-controller or --bootstrap-server.")
    controllers = parsed.bootstrap_controller is not None
    with open_cluster(bootstrap, command_properties_of(parsed.command_config), controllers=controllers) as cluster:
        if parsed.command == "describe":
            _describe(cluster, parsed.node_id)
            return 0
        return _update(cluster, parsed)


def _describe(cluster: Cluster, node_id: int | None) -> None:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
    if node_id is None:
        answer = cluster.any_call("describeFeatures", request, ApiVersionsResponse)
    else:
        answer = cluster.node_call("describeFeatures", node_id, request, ApiVersionsResponse)
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    for feature in sorted(answer.supported_features, key=lambda feature: feature.name):
        cells = (feature.min_version, feature.max_version, finalized.get(feature.name, 0))
        low, high, level = (_level(feature.name, cell) for cell in cells)
        print(
            f"{f'Feature: {feature.name}':<50} {f'SupportedMinVersion: {low}':<37} "
            f"{f'SupportedMaxVersion: {high}':<37} {f'FinalizedVersionLevel: {level}':<39} Epoch: {_epoch(answer)}"
        )


def _epoch(answer: ApiVersionsResponse) -> str:
    return str(answer.finalized_features_epoch) if answer.finalized_features_epoch >= 0 else "-"


def _level(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    return METADATA_VERSIONS.get(level, f"UNKNOWN [{level}]")


def _update(cluster: Cluster, parsed: Namespace) -> int:
    from ottla.protocol.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
    from ottla.protocol.generated.update_features_response import UpdateFeaturesResponse

    verb, done = {"upgrade": ("upgrade", "upgraded"), "downgrade": ("downgrade", "downgraded")}.get(
        parsed.command, ("disable", "disabled")
    )
    levels = _requested_levels(parsed, verb)
    kind = UPGRADE if verb == "upgrade" else UNSAFE if parsed.unsafe else SAFE
    keys = [FeatureUpdateKey(name, level, False, kind) for name, level in levels.items()]
    request = UpdateFeaturesRequest(60000, keys, parsed.dry_run)
    answer = cluster.controller_call("updateFeatures", request, UpdateFeaturesResponse, lambda a: a.error_code)
    results = {row.feature: (row.error_code, row.error_message) for row in answer.results}
    failures = 0
    for name, level in sorted(levels.items()):
        code, words = results.get(name, (answer.error_code, answer.error_message))
        target = "" if verb == "disable" else f" to {level}"
        if code:
            failures += 1
            could = "Can not" if parsed.dry_run else "Could not"
            print(f"{could} {verb} {name}{target}. {error_of(code, words)}")
        elif parsed.dry_run:
            print(f"{name} can be {done}{target}.")
        else:
            print(f"{name} was {done}{target}.")
    if failures:
        print(f"{failures} out of {len(levels)} operation(s) failed.", file=sys.stderr)
        return 1
    return 0


def _requested_levels(parsed: Namespace, verb: str) -> dict[str, int]:
    if verb == "disable":
        if not parsed.feature:
            raise ReleaseError("You must specify at least one feature to disable.")
        return dict.fromkeys(parsed.feature, 0)
    if parsed.release_version is not None:
        if parsed.metadata or parsed.feature:
            raise ReleaseError("Can not specify `release-version` with other feature flags.")
        return release_levels(parsed.release_version)
    levels: dict[str, int] = {}
    if parsed.metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        levels[METADATA_VERSION] = release_levels(parsed.metadata)[METADATA_VERSION]
    for text in parsed.feature:
        name, level = feature_and_level(text)
        if name in levels:
            raise ReleaseError(f"Feature {name} was specified more than once.")
        levels[name] = level
    if not levels:
        raise ReleaseError(f"You must specify at least one feature to {verb}")
    return levels
