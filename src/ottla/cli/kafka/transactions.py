"""kafka-transactions: list, describe, find hanging ones, abort them."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from ottla.cli.kafka.admin import REFUSED, UnreadableFile, command_properties_of, open_cluster
from ottla.cli.kafka.arguments import PrintVersion, ToolParser, java_integer
from ottla.cli.kafka.columns import print_tabbed
from ottla.cli.kafka.options import Exit
from ottla.client.cluster import Cluster
from ottla.client.topics import list_topics
from ottla.client.transactions import (
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
    terminate_transaction,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.describe_producers_response import ProducerState

_NAME = "kafka-transactions.sh"


class TransactionsError(Exception):
    """Printed as it is."""


def main(arguments: list[str]) -> int:
    try:
        parsed = _parser().parse(arguments)
        with open_cluster(parsed.bootstrap_server, _properties(parsed.command_config)) as cluster:
            _COMMANDS[parsed.command](cluster, parsed)
    except Exit as end:
        return end.code
    except (*REFUSED, TransactionsError) as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _properties(path: str | None) -> dict[str, str]:
    try:
        return command_properties_of(path)
    except UnreadableFile as reason:
        raise TransactionsError(
            f"Failed to load admin client properties: {reason}. Enable debug logging for additional detail."
        ) from None


def _parser() -> ToolParser:
    parser = ToolParser(_NAME, "This tool is used to analyze the transactional state of producers in the cluster.")
    parser.add_argument("-v", "--version", action=PrintVersion)
    parser.add_argument("--command-config", metavar="FILE", help="File with the client's properties.")
    parser.add_argument("--bootstrap-server", metavar="host:port", required=True, help="Brokers, as HOST:PORT,...")
    commands = parser.commands("COMMAND")
    listed = parser.command(commands, "list", "List transactions.")
    listed.add_argument(
        "--duration-filter",
        type=java_integer(64),
        default=-1,
        help="List only transactions that are open for more than this number of milliseconds.",
    )
    listed.add_argument("--transactional-id-pattern", help="List only transactional ids that match this pattern.")
    describe = parser.command(commands, "describe", "Show the state of one transactional id.")
    describe.add_argument("--transactional-id", required=True, help="The id.")
    producers = parser.command(commands, "describe-producers", "Show the producers of a partition.")
    producers.add_argument("--broker-id", type=java_integer(), help="Ask this replica instead of the leader.")
    abort = parser.command(commands, "abort", "Abort a hanging transaction.")
    hanging = parser.command(commands, "find-hanging", "Find hanging transactions.")
    hanging.add_argument("--broker-id", type=java_integer(), help="Search the partitions of this broker.")
    hanging.add_argument(
        "--max-transaction-timeout",
        type=java_integer(),
        default=15,
        help="Largest transaction.max.timeout.ms of the cluster, in minutes.",
    )
    hanging.add_argument("--topic", help="Search this topic.")
    hanging.add_argument("--partition", type=java_integer(), help="Search this partition.")
    for command in (producers, abort):
        command.add_argument("--topic", required=True, help="The topic.")
        command.add_argument("--partition", type=java_integer(), required=True, help="The partition.")
    for name, bits in (("start-offset", 64), ("producer-id", 64), ("producer-epoch", 32), ("coordinator-epoch", 32)):
        abort.add_argument(f"--{name}", type=java_integer(bits), help="What to abort.")
    terminate = parser.command(commands, "forceTerminateTransaction", "Fence the producer of a transactional id.")
    terminate.add_argument(
        "--transactionalId", "--transactional-id", dest="transactional_id", required=True, help="The id."
    )
    return parser


def _list(cluster: Cluster, parsed: Namespace) -> None:
    rows = list_transactions(cluster, duration_ms=parsed.duration_filter, pattern=parsed.transactional_id_pattern)
    print_tabbed(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [(row.transactional_id, str(node), str(row.producer_id), row.transaction_state) for node, row in rows],
    )


def _describe(cluster: Cluster, parsed: Namespace) -> None:
    try:
        node, state = describe_transaction(cluster, parsed.transactional_id)
    except KafkaError as reason:
        words = str(reason)
        if reason.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            words = f"DescribeTransactions request for transactionalId `{parsed.transactional_id}` failed because the ID could not be found"
        raise TransactionsError(
            f"Failed to describe transaction state of transactional-id `{parsed.transactional_id}`: {words}. "
            "Enable debug logging for additional detail."
        ) from None
    started = state.transaction_start_time_ms
    print_tabbed(
        (
            "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
            "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
        ),
        [(
            str(node), state.transactional_id, str(state.producer_id), str(state.producer_epoch), state.transaction_state,
            str(state.transaction_timeout_ms), str(started) if started >= 0 else "None",
            str(int(time.time() * 1000) - started) if started >= 0 else "None",
            ",".join(f"{topic.topic}-{partition}" for topic in state.topics for partition in topic.partitions),
        )],
    )  # fmt: skip


def _producers(cluster: Cluster, parsed: Namespace) -> None:
    try:
        rows = describe_producers(cluster, parsed.topic, parsed.partition, parsed.broker_id)
    except KafkaError as reason:
        where = f"broker {parsed.broker_id}" if parsed.broker_id is not None else "leader"
        raise TransactionsError(
            f"Failed to describe producers for partition {parsed.topic}-{parsed.partition} on {where}: {reason}. "
            "Enable debug logging for additional detail."
        ) from None
    print_tabbed(
        ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp", "CurrentTransactionStartOffset"),
        [
            (
                str(row.producer_id), str(row.producer_epoch), str(row.coordinator_epoch), str(row.last_sequence),
                str(row.last_timestamp),
                str(row.current_txn_start_offset) if row.current_txn_start_offset >= 0 else "None",
            )
            for row in rows
        ],
    )  # fmt: skip


def _abort(cluster: Cluster, parsed: Namespace) -> None:
    old = (parsed.producer_id, parsed.producer_epoch, parsed.coordinator_epoch)
    if parsed.start_offset is None and None in old:
        raise TransactionsError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) "
            "or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if parsed.start_offset is not None:
        rows = describe_producers(cluster, parsed.topic, parsed.partition)
        open_transaction = next((row for row in rows if row.current_txn_start_offset == parsed.start_offset), None)
        if open_transaction is None:
            raise TransactionsError(
                f"Could not find any open transactions starting at offset {parsed.start_offset} "
                f"on partition {parsed.topic}-{parsed.partition}"
            )
        old = (
            open_transaction.producer_id,
            open_transaction.producer_epoch,
            max(open_transaction.coordinator_epoch, 0),
        )
    abort_transaction(
        cluster, parsed.topic, parsed.partition, producer_id=old[0], producer_epoch=old[1], coordinator_epoch=old[2]
    )


def _terminate(cluster: Cluster, parsed: Namespace) -> None:
    try:
        terminate_transaction(cluster, parsed.transactional_id)
    except KafkaError as reason:
        raise TransactionsError(
            f"Failed to force terminate transactionalId `{parsed.transactional_id}`: {reason}"
        ) from None


def _find_hanging(cluster: Cluster, parsed: Namespace) -> None:
    if parsed.topic is None and parsed.broker_id is None:
        raise TransactionsError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if parsed.topic is None and parsed.partition is not None:
        raise TransactionsError("The --partition argument requires --topic to be provided")
    limit = parsed.max_transaction_timeout * 60_000
    now = int(time.time() * 1000)
    open_rows: list[tuple[str, int, ProducerState]] = []
    for topic in list_topics(cluster):
        if parsed.topic is not None and topic.name != parsed.topic:
            continue
        for row in topic.partitions:
            if parsed.partition is not None and row.partition_index != parsed.partition:
                continue
            if parsed.broker_id is not None and parsed.broker_id not in row.replica_nodes:
                continue
            open_rows += [
                (topic.name or "", row.partition_index, state)
                for state in describe_producers(cluster, topic.name or "", row.partition_index, parsed.broker_id)
                if state.current_txn_start_offset >= 0 and now - state.last_timestamp > limit
            ]
    hanging = [row for row in open_rows if not _is_listed(cluster, *row)]
    print_tabbed(
        ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp", "Duration(min)"),
        [
            (
                topic, str(partition), str(state.producer_id), str(state.producer_epoch), str(state.coordinator_epoch),
                str(state.current_txn_start_offset), str(state.last_timestamp), str((now - state.last_timestamp) // 60_000),
            )
            for topic, partition, state in hanging
        ],
    )  # fmt: skip


def _is_listed(cluster: Cluster, topic: str, partition: int, state: ProducerState) -> bool:
    """Whether a coordinator still lists this transaction, with this partition in it."""
    for _, listed in list_transactions(cluster, producer_ids=[state.producer_id]):
        _, described = describe_transaction(cluster, listed.transactional_id)
        if any(row.topic == topic and partition in row.partitions for row in described.topics):
            return True
    return False


_COMMANDS = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _producers,
    "abort": _abort,
    "find-hanging": _find_hanging,
    "forceTerminateTransaction": _terminate,
}
