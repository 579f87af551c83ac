"""kafka-verifiable-consumer: reads topics in a group, and prints every step as JSON."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from ottla.cli.kafka.admin import REFUSED
from ottla.cli.kafka.arguments import ToolParser, java_integer
from ottla.cli.kafka.client_properties import made_client, next_batch
from ottla.cli.kafka.options import CTRL_C, INTERRUPTED, Exit
from ottla.cli.kafka.verifiable_producer import config_of, tell


def main(arguments: list[str]) -> int:
    parser = ToolParser(
        "verifiable-consumer", "This tool consumes messages from specified topics and prints each step as JSON."
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="HOST1:PORT1[,HOST2:PORT2[...]]", help="Brokers.")
    parser.add_argument("--topic", action="append", required=True, help="A topic; may be repeated.")
    parser.add_argument("--group-protocol", default="classic", help="classic or consumer.")
    parser.add_argument("--group-remote-assignor", help="The server's assignor.")
    parser.add_argument("--group-id", required=True, metavar="GROUP_ID", help="The group.")
    parser.add_argument("--group-instance-id", metavar="GROUP_INSTANCE_ID", help="A static member's name.")
    parser.add_argument("--max-messages", type=java_integer(), default=-1, help="Number of records; -1 sets no limit.")
    parser.add_argument("--session-timeout", type=java_integer(), default=30000, help="In ms.")
    parser.add_argument("--verbose", action="store_true", help="Print every record.")
    parser.add_argument("--enable-autocommit", action="store_true", help="Commit offsets automatically.")
    parser.add_argument("--reset-policy", default="earliest", help="earliest, latest or none.")
    parser.add_argument("--assignment-strategy", default="", help="Java class of the assignor.")
    for name in ("--consumer.config", "--command-config"):
        parser.add_argument(name, metavar="CONFIG_FILE", help="A file with the consumer's properties.")
    try:
        if not arguments:
            parser.print_help()
            return 0
        parsed = parser.parse(arguments)
        return _run(parsed, config_of(parser, parsed, "consumer.config"))
    except Exit as end:
        return end.code
    except REFUSED as reason:
        print(reason, file=sys.stderr)
        return 1


def _run(parsed: Namespace, properties: dict[str, str]) -> int:
    _check(parsed)
    properties |= {
        "bootstrap.servers": parsed.bootstrap_server,
        "group.id": parsed.group_id,
        "auto.offset.reset": parsed.reset_policy,
        "enable.auto.commit": str(parsed.enable_autocommit).lower(),
        "group.protocol": parsed.group_protocol,
    }
    if parsed.group_protocol == "classic":
        properties["session.timeout.ms"] = str(parsed.session_timeout)
    if parsed.group_instance_id:
        properties["group.instance.id"] = parsed.group_instance_id
    if parsed.group_remote_assignor and parsed.group_protocol == "consumer":
        properties["group.remote.assignor"] = parsed.group_remote_assignor
    more: dict[str, object] = {}
    strategy = {"RoundRobinAssignor": "roundrobin", "CooperativeStickyAssignor": "cooperative-sticky"}.get(
        parsed.assignment_strategy.rpartition(".")[2]
    )
    if strategy and parsed.group_protocol == "classic":
        more["partition__assignment__strategy"] = strategy
    consumer = made_client(properties, producer=False, **more)

    def places(partitions: Any) -> list[dict[str, object]]:
        return [{"topic": place.topic, "partition": place.partition} for place in partitions]

    code = 0
    try:
        tell("startup_complete")
        consumer.subscribe(
            parsed.topic,
            on_assign=lambda _, partitions: tell("partitions_assigned", partitions=places(partitions)),
            on_revoke=lambda _, partitions: tell("partitions_revoked", partitions=places(partitions)),
        )
        _consume(consumer, parsed)
    except CTRL_C:
        code = INTERRUPTED
        tell("shutdown_requested")
    finally:
        consumer.close()
    tell("shutdown_complete")
    if code != INTERRUPTED:
        tell("shutdown_requested")  # as Java's, whose hook runs at the end in any case
    return code


def _check(parsed: Namespace) -> None:
    parsed.group_protocol = parsed.group_protocol.lower()
    if parsed.group_protocol not in {"classic", "consumer"}:
        name = parsed.group_protocol.upper()
        raise ValueError(f"No enum constant org.apache.kafka.clients.consumer.GroupProtocol.{name}")
    if parsed.reset_policy not in {"earliest", "latest", "none"}:
        raise ValueError(
            f"Invalid value {parsed.reset_policy} for configuration auto.offset.reset: Invalid value "
            f"`{parsed.reset_policy}` for configuration auto.offset.reset. The value must be either 'earliest', "
            "'latest', 'none' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        )


def _consume(consumer: Any, parsed: Namespace) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    seen = 0
    while parsed.max_messages < 0 or seen < parsed.max_messages:
        polled = [message for message in next_batch(consumer, 500, 0.2) if message.error() is None]
        if not polled:
            continue
        messages = polled if parsed.max_messages < 0 else polled[: parsed.max_messages - seen]
        ranges: dict[tuple[str, int], list[int]] = {}
        for message in messages:
            ranges.setdefault((message.topic(), message.partition()), []).append(message.offset())
            if parsed.verbose:
                key, value = (
                    None if part is None else part.decode("utf-8", "replace")
                    for part in (message.key(), message.value())
                )
                tell(
                    "record_data",
                    key=key,
                    value=value,
                    topic=message.topic(),
                    partition=message.partition(),
                    offset=message.offset(),
                )
        seen += len(messages)
        tell("records_consumed", count=len(polled), partitions=[
            {"topic": topic, "partition": partition, "count": len(offsets), "minOffset": min(offsets), "maxOffset": max(offsets)}
            for (topic, partition), offsets in ranges.items()
        ])  # fmt: skip
        if parsed.enable_autocommit:
            continue
        ends = [
            {"topic": topic, "partition": partition, "offset": max(rows) + 1}
            for (topic, partition), rows in ranges.items()
        ]
        try:
            consumer.commit(
                offsets=[
                    TopicPartition(topic, partition, max(rows) + 1) for (topic, partition), rows in ranges.items()
                ],
                asynchronous=False,
            )
            tell("offsets_committed", offsets=ends, success=True)
        except KafkaException as reason:
            tell("offsets_committed", offsets=ends, success=False, error=reason.args[0].str())
