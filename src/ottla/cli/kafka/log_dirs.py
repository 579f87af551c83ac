"""kafka-log-dirs: what lies in the log directories of brokers, as JSON."""

from __future__ import annotations

import json
import sys

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, cluster_of
from ottla.cli.kafka.options import Exit, Option, OptionParser, Options, is_integer
from ottla.client.cluster import Cluster
from ottla.client.errors import check, error_of, java_name

PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("describe", text="Describe the log directories of brokers."),
    Option("topic-list", "String: Topic list", "Only these topics, as t1,t2.", ""),
    Option("broker-list", "String: Broker list", "Only these brokers, as 1,2."),
))  # fmt: skip


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, "This tool helps to query log directory usage on the specified brokers.")
        options.require("bootstrap-server", "describe")
        with cluster_of(options) as cluster:
            return _describe(cluster, options)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def _describe(cluster: Cluster, options: Options) -> int:
    topics = [word.strip() for word in (options.value("topic-list") or "").split(",") if word.strip()]
    existing = sorted(broker.node_id for broker in cluster.describe("describeCluster").brokers)
    broker_ids = existing
    if (listed := options.value("broker-list")) is not None:
        words = [word.strip() for word in listed.split(",") if word.strip()]
        for word in words:
            if not is_integer(word):
                raise ValueError(f'For input string: "{word}"')
        broker_ids = [int(word) for word in words]
    missing = [broker for broker in broker_ids if broker not in existing]
    if missing:
        absent, existing_ids = ",".join(map(str, missing)), ",".join(map(str, existing))
        print(
            f"ERROR: The given brokers do not exist from --broker-list: {absent}. "
            f"Current existent brokers: {existing_ids}",
            file=sys.stderr,
        )
        return 1
    print("Querying brokers for log directories information")
    rows = [{"broker": broker, "logDirs": _directories(cluster, broker, topics)} for broker in broker_ids]
    print(f"Received log directory information from brokers {','.join(map(str, broker_ids))}")
    print(json.dumps({"brokers": rows, "version": 1}, separators=(",", ":")))
    return 0


def _directories(cluster: Cluster, broker: int, topics: list[str]) -> list[dict[str, object]]:
    from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
    from ottla.protocol.generated.describe_log_dirs_response import DescribeLogDirsResponse

    answer = cluster.node_call("describeLogDirs", broker, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
    check(answer.error_code)
    return [
        {
            "partitions": [
                {
                    "partition": f"{topic.name}-{row.partition_index}",
                    "size": row.partition_size,
                    "offsetLag": row.offset_lag,
                    "isFuture": row.is_future_key,
                }
                for topic in sorted(directory.topics, key=lambda topic: topic.name)
                if not topics or topic.name in topics
                for row in sorted(topic.partitions, key=lambda row: row.partition_index)
            ],
            "error": java_name(error_of(directory.error_code)) if directory.error_code else None,
            "logDir": directory.log_dir,
        }
        for directory in answer.results
    ]
