"""kafka-reassign-partitions: move replicas between brokers: a plan, its start, its progress, its end."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from ottla.cli.kafka.admin import COMMAND_CONFIG, REFUSED, cluster_of
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.cli.kafka.reassign_throttles import clear_throttles, set_log_dirs_throttle, set_throttles
from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout, java_name
from ottla.client.placements import (
    Placement,
    alter_reassignments,
    current_placements,
    log_dirs_of,
    move_log_dirs,
    placed_evenly,
)
from ottla.client.topics import list_reassignments
from ottla.model.errors import KafkaError

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
PARSER = OptionParser((
    Option("bootstrap-server", "[String: Server(s) to use for bootstrapping]", "Brokers, as HOST:PORT,..."),
    Option("bootstrap-controller", "[String: bootstrap controller to connect to]", "Controllers, as HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("generate", text="Print a plan that moves topics to brokers."),
    Option("execute", text="Start a reassignment."),
    Option("verify", text="Check whether a reassignment is complete, and remove its throttles when it is."),
    Option("cancel", text="Cancel a reassignment."),
    Option("list", text="List running reassignments."),
    Option("reassignment-json-file", "String: manual assignment json file path",
           '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1,2], "log_dirs": ["any","any"]}], "version": 1}'),
    Option("topics-to-move-json-file", "String: topics to reassign json file path",
           '{"topics": [{"topic": "t"}], "version": 1}'),
    Option("broker-list", "String: brokerlist", "The brokers to move to, as 0,1,2."),
    Option("disable-rack-aware", text="Ignore racks."),
    Option("throttle", "Long: throttle", "Limit of bytes a second between brokers.", "-1"),
    Option("replica-alter-log-dirs-throttle", "Long: replicaAlterLogDirsThrottle", "Limit of bytes a second between directories.", "-1"),
    Option("timeout", "Long: timeout", "Milliseconds to wait for log directories.", "10000"),
    Option("additional", text="Execute in addition to running reassignments."),
    Option("preserve-throttles", text="Keep throttles."),
    Option("disallow-replication-factor-change", text="Refuse a change of the replication factor."),
))  # fmt: skip
_ALLOWED = {
    "verify": {"reassignment-json-file", "preserve-throttles"},
    "generate": {"broker-list", "topics-to-move-json-file", "disable-rack-aware"},
    "execute": {
        "reassignment-json-file", "additional", "throttle", "replica-alter-log-dirs-throttle", "timeout",
        "disallow-replication-factor-change",
    },
    "cancel": {"reassignment-json-file", "preserve-throttles", "timeout"},
    "list": set(),
}  # fmt: skip
_REQUIRED = {
    "verify": ("reassignment-json-file",), "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",), "cancel": ("reassignment-json-file",), "list": (),
}  # fmt: skip
_ALWAYS = {"bootstrap-server", "bootstrap-controller", "command-config"}


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "This tool helps to move topic partitions between replicas.")
        action = _check(options)
    except Exit as end:
        return end.code
    except OptionError as reason:
        print(reason, file=sys.stderr)
        return 1
    try:
        with cluster_of(options) as cluster:
            _RUN[action](cluster, options)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(f"Error: {f'{java_name(reason)}: ' if isinstance(reason, (KafkaError, CallTimeout)) else ''}{reason}")
        return 1
    return 0


def _check(options: Options) -> str:
    chosen = [name for name in ACTIONS if options.has(name)]
    if len(chosen) != 1:
        options.usage("Command must include exactly one action: --generate, --execute, --verify, --cancel, --list")
    action = chosen[0]
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        options.usage("Please specify --bootstrap-server or --bootstrap-controller")
    options.require(*_REQUIRED[action])
    for name in options.order:
        if name not in _ALLOWED[action] | _ALWAYS | {action}:
            options.usage(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


def _json(path: str) -> dict[str, object]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        raise ValueError(f"Unable to read file {path}") from None
    try:
        document = json.loads(text)
    except ValueError:
        token = "".join(re.findall(r"^\s*(\w+)", text))
        raise ValueError(
            f"Unrecognized token '{token}': was expecting (JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
        ) from None
    return document if isinstance(document, dict) else {}


def _placements(path: str) -> dict[tuple[str, int], Placement]:
    rows = _json(path).get("partitions", [])
    if not isinstance(rows, list) or not rows:
        raise ValueError("Partition reassignment list cannot be empty")
    placements: dict[tuple[str, int], Placement] = {}
    for row in rows:
        replicas = [int(broker) for broker in row["replicas"]]
        directories = [str(name) for name in row.get("log_dirs", ["any"] * len(replicas))]
        if len(directories) != len(replicas):
            raise ValueError(
                f"Size of replicas list [{', '.join(map(str, replicas))}] is different from size of log dirs list "
                f"[{', '.join(directories)}] for partition {row['topic']}-{row['partition']}"
            )
        where = (str(row["topic"]), int(row["partition"]))
        if where in placements:
            raise ValueError(f"Partition reassignment contains duplicate topic partitions: {where[0]}-{where[1]}")
        if not replicas:
            raise ValueError(f"Partition replica list cannot be empty for partition {where[0]}-{where[1]}")
        if len(set(replicas)) != len(replicas):
            raise ValueError(f"Partition replica lists may not contain duplicate entries: {where[0]}-{where[1]}")
        placements[where] = Placement(tuple(replicas), tuple(directories))
    return dict(sorted(placements.items()))


def plan_text(placements: dict[tuple[str, int], Placement]) -> str:
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(placement.replicas),
            "log_dirs": list(placement.directories),
        }
        for (topic, partition), placement in sorted(placements.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def _generate(cluster: Cluster, options: Options) -> None:
    brokers = []
    for word in options.required("broker-list").split(","):
        if not word.strip().isdigit():
            raise ValueError(f'For input string: "{word}"')
        brokers.append(int(word))
    if len(set(brokers)) != len(brokers):
        raise ValueError("Broker list contains duplicate entries")
    rows = _json(options.required("topics-to-move-json-file")).get("topics", [])
    topics = [str(row["topic"]) for row in rows] if isinstance(rows, list) else []
    current = current_placements(cluster, topics)
    registered = {broker.node_id: broker.rack for broker in cluster.describe("describeCluster").brokers}
    racks = {} if options.has("disable-rack-aware") else {id_: rack for id_, rack in registered.items() if rack}
    print(f"Current partition replica assignment\n{plan_text(current)}\n")
    usable = [broker for broker in brokers if broker in registered]
    print(f"Proposed partition reassignment configuration\n{plan_text(placed_evenly(current, usable, racks))}")


def _execute(cluster: Cluster, options: Options) -> None:
    target_placements = _placements(options.required("reassignment-json-file"))
    registered = {broker.node_id for broker in cluster.describe("describeCluster").brokers}
    active = list_reassignments(cluster)
    if active and not options.has("additional"):
        raise ValueError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    for placement in target_placements.values():
        for broker in placement.replicas:
            if broker not in registered:
                raise ValueError(f"Unknown broker id {broker}")
    current = {
        where: placement
        for where, placement in current_placements(cluster, {topic for topic, _ in target_placements}).items()
        if where in target_placements
    }
    print(f"Current partition replica assignment\n\n{plan_text(current)}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    throttle, between_dirs = (
        int(options.value(name) or -1) for name in ("throttle", "replica-alter-log-dirs-throttle")
    )
    if throttle >= 0 or between_dirs >= 0:
        print(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
        )
    if throttle >= 0:
        set_throttles(cluster, current, target_placements, throttle)
        print(f"The inter-broker throttle limit was set to {throttle} B/s")
    if between_dirs >= 0:
        set_log_dirs_throttle(
            cluster, {broker for placement in target_placements.values() for broker in placement.replicas}, between_dirs
        )
        print(f"The replica-alter-dir throttle limit was set to {between_dirs} B/s")
    errors = alter_reassignments(
        cluster,
        {where: placement.replicas for where, placement in target_placements.items()},
        allow_factor_change=not options.has("disallow-replication-factor-change"),
    )
    if errors:
        lines = "\n".join(f"{topic}-{partition}: {error}" for (topic, partition), error in sorted(errors.items()))
        raise ValueError(f"Error reassigning partition(s):\n{lines}")
    names = ",".join(f"{topic}-{partition}" for topic, partition in target_placements)
    print(f"Successfully started partition reassignment{'s' if len(target_placements) > 1 else ''} for {names}")
    moved = move_log_dirs(cluster, target_placements)
    if moved:
        listed = ",".join(moved)
        print(f"Successfully started log directory move{'s' if len(moved) > 1 else ''} for: {listed}")


def _verify(cluster: Cluster, options: Options) -> None:
    target_placements = _placements(options.required("reassignment-json-file"))
    active = list_reassignments(cluster)
    current = current_placements(cluster, {topic for topic, _ in target_placements}, missing_ok=True)
    print("Status of partition reassignment:")
    busy = False
    for (topic, partition), placement in target_placements.items():
        name = f"{topic}-{partition}"
        current_placement = current.get((topic, partition))
        if (topic, partition) in active:
            busy = True
            print(f"Reassignment of partition {name} is still in progress.")
        elif current_placement is not None and current_placement.replicas == placement.replicas:
            print(f"Reassignment of partition {name} is completed.")
        else:
            have = ",".join(map(str, current_placement.replicas)) if current_placement else ""
            print(
                f"There is no active reassignment of partition {name}, but replica set is {have} "
                f"rather than {','.join(map(str, placement.replicas))}."
            )
    moving = _directory_states(cluster, target_placements)
    print()
    if not busy and not moving and not options.has("preserve-throttles"):
        clear_throttles(cluster, sorted({topic for topic, _ in target_placements}))


def _directory_states(cluster: Cluster, target_placements: dict[tuple[str, int], Placement]) -> bool:
    moving = False
    for (topic, partition), placement in target_placements.items():
        for broker, directory in zip(placement.replicas, placement.directories, strict=True):
            if directory == "any":
                continue
            now, future = log_dirs_of(cluster, broker).get((topic, partition), ("", None))
            replica = f"{topic}-{partition}-{broker}"
            if future == directory:
                moving = True
                print(f"Reassignment of replica {replica} is still in progress.")
            elif now == directory:
                print(f"Reassignment of replica {replica} completed successfully.")
            else:
                print(
                    f"Partition {topic}-{partition} on broker {broker} is not being moved from log dir {now} to {directory}."
                )
    return moving


def _cancel(cluster: Cluster, options: Options) -> None:
    target_placements = _placements(options.required("reassignment-json-file"))
    active = {where for where in list_reassignments(cluster) if where in target_placements}
    if active:
        alter_reassignments(cluster, dict.fromkeys(sorted(active)), allow_factor_change=True)
        names = ",".join(f"{topic}-{partition}" for topic, partition in sorted(active))
        print(f"Successfully cancelled partition reassignment{'s' if len(active) > 1 else ''} for: {names}")
    else:
        print("None of the specified partition reassignments are active.")
    print("None of the specified partition moves are active.", end="")
    if not options.has("preserve-throttles"):
        clear_throttles(cluster, sorted({topic for topic, _ in target_placements}))


def _list(cluster: Cluster, options: Options) -> None:
    del options
    active = list_reassignments(cluster)
    if not active:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for (topic, partition), move in sorted(active.items()):
        cells = [f"{topic}-{partition}: replicas: {','.join(map(str, move.replicas))}."]
        if move.adding:
            cells.append(f" adding: {','.join(map(str, move.adding))}.")
        if move.removing:
            cells.append(f" removing: {','.join(map(str, move.removing))}.")
        print("".join(cells))


_RUN = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}
