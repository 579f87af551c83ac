"""The other half of how `odd_requests` asks: transactions, settings, fetch sessions."""

from __future__ import annotations

from ottla.protocol.generated import add_partitions_to_txn_request as add
from ottla.protocol.generated import describe_transactions_request as describe
from ottla.protocol.generated import end_txn_request as end
from ottla.protocol.generated import fetch_request as fetch
from ottla.protocol.generated import find_coordinator_request as find
from ottla.protocol.generated import incremental_alter_configs_request as alter
from ottla.protocol.generated import write_txn_markers_request as markers
from ottla.protocol.primitives import Message
from tests.interop.differential.odd_questions import Asked, Build, known_id
from tests.interop.differential.pair import Pair, Side

_SETTINGS = (
    ("retention.ms", "5000000000"), ("retention.ms", "x"), ("cleanup.policy", "compact"), ("cleanup.policy", None), ("no.such", "1"),
    ("max.message.bytes", "200"), ("compression.type", "gzip"), ("", "1"), ("cleanup.policy", ""),
)  # fmt: skip


def _producer(asked: Asked) -> tuple[int, int]:
    _, producer, epoch = asked.options
    return producer, max(-32768, min(epoch, 32767))


def _markers(side: Side, asked: Asked) -> Message:
    """Markers of producers that have no transaction here, or none at all."""
    result, _, coordinator_epoch = asked.options
    _, epoch = _producer(asked)
    producer = side.memory["producer0"] if asked.options[1] > 0 else asked.options[1]
    wanted = {
        name: dict.fromkeys(p for n, items in asked.topics if n == name for p, _ in items) for name, _ in asked.topics
    }
    topics = [markers.WritableTxnMarkerTopic(name, list(partitions)) for name, partitions in wanted.items()]
    version = coordinator_epoch % 3 if asked.version >= 2 else 0
    marker = markers.WritableTxnMarker(producer, epoch, bool(result % 2), topics, coordinator_epoch, version)
    return markers.WriteTxnMarkersRequest([marker])


def _transactional_id(asked: Asked) -> str:
    return asked.topics[0][0] if asked.topics else ""


def _add(_side: Side, asked: Asked) -> Message:
    topics = [add.AddPartitionsToTxnTopic(name, [p for p, _ in items]) for name, items in asked.topics]
    return add.AddPartitionsToTxnRequest([], _transactional_id(asked), *_producer(asked), topics)


def _end(_side: Side, asked: Asked) -> Message:
    return end.EndTxnRequest(_transactional_id(asked), *_producer(asked), bool(asked.options[0] % 2))


def _describe(_side: Side, asked: Asked) -> Message:
    return describe.DescribeTransactionsRequest([name for name, _ in asked.topics])


def _find(_side: Side, asked: Asked) -> Message:
    kind = asked.options[0] % 2 if asked.version >= 1 else 0
    names = [name for name, _ in asked.topics]
    if asked.version >= 4:
        return find.FindCoordinatorRequest("", kind, names)
    return find.FindCoordinatorRequest(names[0] if names else "", kind)


def _alter(_side: Side, asked: Asked) -> Message:
    """A resource twice, a setting twice, null values, operations that do not fit."""
    kind, setting, operation = asked.options
    resources = [
        alter.AlterConfigsResource(
            2 if kind >= -1 else 0,
            name,
            [
                alter.AlterableConfig(key, (operation + number) % 4, value)
                for _, number in items
                for key, value in [_SETTINGS[(setting + number) % len(_SETTINGS)]]
            ],
        )
        for name, items in asked.topics
    ]
    return alter.IncrementalAlterConfigsRequest(resources, kind == 1)


def _session(side: Side, asked: Asked) -> Message:
    """The next step of the one session, or a step out of order."""
    version, (isolation, jump, forget) = asked.version, asked.options
    session, epoch = side.memory.get("session", (0, 0))
    topics, forgotten = [], []
    for name, items in asked.topics:
        where = {"topic_id": known_id(side, name)} if version >= 13 else {"topic": name}
        known = version < 13 or where["topic_id"] != known_id(side, "")
        gone = [p for p, number in items if number % 4 == 1] if forget > 0 and known else []
        wanted = [
            fetch.FetchPartition(p, -1, number, partition_max_bytes=1 << 20) for p, number in items if p not in gone
        ]
        topics.append(fetch.FetchTopic(**where, partitions=wanted))
        if gone:
            forgotten.append(fetch.ForgottenTopic(**where, partitions=gone))
    return fetch.FetchRequest(
        max_wait_ms=0, isolation_level=isolation % 2, session_id=session, session_epoch={2: -1, 3: epoch + 1, 4: 0}.get(jump, epoch),
        topics=topics, forgotten_topics_data=forgotten,
    )  # fmt: skip


def after_session(pair: Pair) -> None:
    """What a client would do with the answer: go on, or begin anew."""
    for side in pair.sides:
        session, epoch = side.memory.get("session", (0, 0))
        answer = side.last
        if answer is None or answer.error_code or not answer.session_id:
            side.memory["session"] = (0, 0)
        else:
            side.memory["session"] = (answer.session_id, epoch + 1 if answer.session_id == session else 1)


MORE_QUESTIONS: dict[str, tuple[int, Build]] = {
    "session": (1, _session),
    "find": (10, _find),
    "add_partitions": (24, _add),
    "end": (26, _end),
    "describe_transactions": (65, _describe),
}
MORE_CHANGES: dict[str, tuple[int, Build]] = {"alter": (44, _alter), "markers": (27, _markers)}
LAST_VERSIONS = {"add_partitions": 3}
"""Later ones speak of several transactions, and Apache Kafka never answers where there is none."""
FIRST_VERSIONS = {"metadata": 4, "session": 7}
"""Earlier ones create topics, or have no sessions."""
