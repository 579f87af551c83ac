"""kafka-verifiable-producer: increasing numbers as records, and JSON about each of them on standard output."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from typing import Any

from ottla.cli.kafka.admin import REFUSED, UnreadableFile, command_properties_of
from ottla.cli.kafka.arguments import ToolParser, java_integer
from ottla.cli.kafka.client_properties import made_client
from ottla.cli.kafka.options import CTRL_C, INTERRUPTED, Exit


def main(arguments: list[str]) -> int:
    parser = ToolParser(
        "verifiable-producer", "This tool produces increasing integers and prints each acknowledgement as JSON."
    )
    parser.add_argument("--topic", required=True, help="Topic to write to.")
    parser.add_argument("--max-messages", type=java_integer(), default=-1, help="Number of records; -1 sets no limit.")
    parser.add_argument("--throughput", type=java_integer(), default=-1, help="Most records a second.")
    parser.add_argument("--acks", type=java_integer(), default=-1, help="acks of the producer.")
    for name in ("--producer.config", "--command-config"):
        parser.add_argument(name, metavar="CONFIG-FILE", help="A file with the producer's properties.")
    parser.add_argument(
        "--message-create-time",
        type=java_integer(64),
        default=-1,
        help="Timestamp of the first record, in milliseconds.",
    )
    parser.add_argument("--value-prefix", type=java_integer(), help="Prefix of each value, followed by a dot.")
    parser.add_argument("--repeating-keys", type=java_integer(), help="Largest key; keys count up from 0 and repeat.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="HOST1:PORT1[,HOST2:PORT2[...]]", help="Brokers.")
    try:
        if not arguments:
            parser.print_help()
            return 0
        parsed = parser.parse(arguments)
        return _run(parsed, config_of(parser, parsed, "producer.config"))
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def config_of(parser: ToolParser, parsed: Namespace, old: str) -> dict[str, str]:
    """The properties of --command-config, or of its old spelling with a warning."""
    new_file, old_file = parsed.command_config, vars(parsed)[old]
    if old_file is not None:
        if new_file is not None:
            parser.error(f"Options --{old} and --command-config are mutually exclusive.")
        print(
            f"Option --{old} has been deprecated and will be removed in a future version. Use --command-config instead."
        )
    try:
        return command_properties_of(new_file or old_file)
    except UnreadableFile as reason:
        parser.error(str(reason))


def tell(name: str, **facts: object) -> None:
    print(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **facts}, separators=(",", ":")), flush=True)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _run(parsed: Namespace, properties: dict[str, str]) -> int:
    properties |= {"bootstrap.servers": parsed.bootstrap_server, "acks": str(parsed.acks), "retries": "0"}
    producer = made_client(properties, producer=True, partitioner="murmur2_random")
    acked = sent = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acked
        where = {"topic": message.topic(), "key": _text(message.key()), "value": _text(message.value())}
        if error is not None:
            tell(
                "producer_send_error",
                exception="class org.apache.kafka.common.KafkaException",
                message=error.str(),
                **where,
            )
            return
        acked += 1
        tell(
            "producer_send_success", key=where["key"], value=where["value"], topic=message.topic(),
            partition=message.partition(), offset=-1 if message.offset() is None else message.offset(),
        )  # fmt: skip

    code = 0
    began = time.perf_counter()
    try:
        tell("startup_complete")
        while parsed.max_messages < 0 or sent < parsed.max_messages:
            value = str(sent) if parsed.value_prefix is None else f"{parsed.value_prefix}.{sent}"
            key = None if not parsed.repeating_keys else str(sent % parsed.repeating_keys)
            created = {} if parsed.message_create_time < 0 else {"timestamp": parsed.message_create_time + sent}
            producer.produce(parsed.topic, value, key=key, on_delivery=delivered, **created)
            sent += 1
            producer.poll(0)
            if parsed.throughput > 0 and (ahead := sent / parsed.throughput - (time.perf_counter() - began)) > 0:
                producer.poll(ahead)
    except CTRL_C:
        code = INTERRUPTED
    producer.flush(60)
    tell("shutdown_complete")
    average = acked / max(time.perf_counter() - began, 1e-3)
    tell("tool_data", sent=sent, acked=acked, target_throughput=parsed.throughput, avg_throughput=average)
    return code
