"""kafka-delete-records: delete what lies before the offsets of a JSON file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.kafka.admin import BOOTSTRAP_SERVER, COMMAND_CONFIG, REFUSED, cluster_of
from ottla.cli.kafka.options import Exit, Option, OptionParser
from ottla.client.cluster import Cluster
from ottla.client.errors import AuthenticationFailed, CallTimeout, ClientError, java_name
from ottla.client.offsets import delete_records
from ottla.model.errors import KafkaError

PARSER = OptionParser((
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Option("offset-json-file", "String: Offset json file path",
           'REQUIRED: {"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}; -1 is the end.'),
))  # fmt: skip
_ABOUT = "This tool helps to delete records of the given partitions down to the specified offset."


def main(arguments: list[str]) -> int:
    try:
        options = PARSER.begin(arguments, _ABOUT)
        options.require("bootstrap-server", "offset-json-file")
        with cluster_of(options) as cluster:
            low_watermarks = _requested_offsets(options.required("offset-json-file"))
            print("Executing records delete operation")
            answers = _deleted(cluster, low_watermarks)
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1
    print("Records delete operation completed:")
    for (topic, partition), answer in sorted(answers.items()):
        where = f"partition: {topic}-{partition}"
        if isinstance(answer, (KafkaError, ClientError)):
            print(f"{where}\terror: {java_name(answer)}: {answer}")
        else:
            print(f"{where}\tlow_watermark: {answer}")
    return 0


def _deleted(
    cluster: Cluster, low_watermarks: dict[tuple[str, int], int]
) -> Mapping[tuple[str, int], int | KafkaError | ClientError]:
    """Without a broker every partition has the same answer, as in Kafka's tool."""
    try:
        return delete_records(cluster, low_watermarks)
    except AuthenticationFailed as reason:
        return dict.fromkeys(low_watermarks, reason)
    except CallTimeout as reason:
        return dict.fromkeys(low_watermarks, CallTimeout(f"{reason}(api=METADATA)"))


def _requested_offsets(path: str) -> dict[tuple[str, int], int]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        raise ValueError(f"Unable to read file {path}") from None
    try:
        document = json.loads(text)
        version = int(document.get("version", 1))
        rows = [(str(row["topic"]), int(row["partition"]), int(row["offset"])) for row in document["partitions"]]
    except (ValueError, AttributeError):
        raise ValueError("The input string is not a valid JSON") from None
    except (KeyError, TypeError):
        raise ValueError("Missing partitions field") from None
    if version != 1:
        raise ValueError(f"Not supported version field value {version}")
    twice = sorted({f"{t}-{p}" for t, p, _ in rows if [row[:2] for row in rows].count((t, p)) > 1})
    if twice:
        raise ValueError(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return {(topic, partition): offset for topic, partition, offset in rows}
