"""kafka-leader-election: elect preferred leaders, or any replica where none is in sync."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ottla.cli.kafka.admin import REFUSED, command_properties, open_cluster
from ottla.cli.kafka.options import Exit, Option, OptionError, OptionParser, Options
from ottla.client.cluster import Cluster
from ottla.client.errors import check, error_of, java_name
from ottla.model.errors import ErrorCode, KafkaError

PARSER = OptionParser((
    Option("bootstrap-server", "String: host:port", "REQUIRED: brokers, as HOST:PORT,..."),
    Option("command-config", "String: Config file", "A file with the client's properties."),
    Option("admin.config", "String: config file", "(DEPRECATED) The same as --command-config."),
    Option("path-to-json-file", "String: Path to JSON file", '{"partitions": [{"topic": "t", "partition": 1}]}'),
    Option("topic", "String: topic name", "The topic; needs --partition."),
    Option("partition", "Integer: partition id", "The partition; needs --topic."),
    Option("all-topic-partitions", text="Every partition."),
    Option("election-type", "[PREFERRED,UNCLEAN]: election type", "preferred or unclean."),
))  # fmt: skip
TYPES = {"preferred": 0, "unclean": 1}
_ABOUT = (
    "This tool attempts to elect a new leader for a set of topic partitions. "
    "The type of elections supported are preferred replicas and unclean replicas."
)


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, _ABOUT)
        kind, partitions = _requested_election(options)
        config = "command-config" if options.has("command-config") else "admin.config"
        if options.has("admin.config"):
            print(
                "Option --admin.config has been deprecated and will be removed in a future version. Use --command-config instead."
            )
        with open_cluster(options.required("bootstrap-server"), command_properties(options, config)) as cluster:
            return _elect(cluster, kind, partitions)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def _requested_election(options: Options) -> tuple[str, list[tuple[str, int]] | None]:
    missing = [name for name in ("bootstrap-server", "election-type") if not options.has(name)]
    if missing:
        raise OptionError(f"Missing required option(s): {', '.join(missing)}")
    kind = options.required("election-type")
    if kind.lower() not in TYPES:
        raise OptionError(f"Cannot parse argument '{kind}' of option election-type")
    scopes = ("topic", "all-topic-partitions", "path-to-json-file")
    if sum(options.has(name) for name in scopes) != 1:
        raise OptionError(f"One and only one of the following options is required: {', '.join(scopes)}")
    if options.has("topic"):
        if not options.has("partition"):
            raise OptionError("Missing required option(s): partition")
        return kind.lower(), [(options.required("topic"), options.integer("partition") or 0)]
    if options.has("partition"):
        raise OptionError("Option partition is only allowed if topic is used")
    if options.has("path-to-json-file"):
        return kind.lower(), _from_file(options.required("path-to-json-file"))
    return kind.lower(), None


def _from_file(path: str) -> list[tuple[str, int]]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError:
        raise OptionError(f"Unable to read file {path}") from None
    except ValueError:
        raise OptionError(f"Replica election data is not valid JSON: {path}") from None
    rows = [(str(row["topic"]), int(row["partition"])) for row in document.get("partitions", [])]
    if not rows:
        raise OptionError('Replica election data is missing "partitions" field')
    twice = [f"{topic}-{partition}" for topic, partition in dict.fromkeys(rows) if rows.count((topic, partition)) > 1]
    if twice:
        raise OptionError(f"Replica election data contains duplicate partitions: {','.join(twice)}")
    return rows


def _elect(cluster: Cluster, kind: str, partitions: list[tuple[str, int]] | None) -> int:
    from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest, TopicPartitions
    from ottla.protocol.generated.elect_leaders_response import ElectLeadersResponse

    topics: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, []).append(partition)
    rows = None if partitions is None else [TopicPartitions(name, listed) for name, listed in topics.items()]
    request = ElectLeadersRequest(TYPES[kind], rows, 30000)
    answer = cluster.controller_call("electLeaders", request, ElectLeadersResponse, lambda a: a.error_code)
    check(answer.error_code)
    elected: list[str] = []
    unneeded: list[str] = []
    failed: dict[str, KafkaError] = {}
    for result in answer.replica_election_results:
        for row in result.partition_result:
            where = f"{result.topic}-{row.partition_id}"
            if not row.error_code:
                elected.append(where)
            elif row.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                unneeded.append(where)
            else:
                failed[where] = error_of(row.error_code, row.error_message)
    if elected:
        print(f"Successfully completed leader election ({kind.upper()}) for partitions {', '.join(elected)}")
    if unneeded:
        print(f"Valid replica already elected for partitions {', '.join(unneeded)}")
    for where, error in failed.items():
        words = f"{java_name(error)}: {error}"
        print(f"Error completing leader election ({kind.upper()}) for partition: {where}: {words}")
    if failed:
        raise OptionError(f"{len(failed)} replica(s) could not be elected")
    return 0
