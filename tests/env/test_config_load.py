"""Loading a server's properties: what Kafka accepts and refuses, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.env.recorded import golden, node, with_changes

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.listeners import Endpoint
from ottla.env.config.load import ineffective, load, load_text, no_effect_line, unknown_lines
from ottla.env.config.problems import ConfigError
from ottla.env.config.topic import TopicConfig
from ottla.env.config.values import render

# Where we refuse and Kafka does not (yet): a port that cannot be bound, what would need a Java class.
STRICTER = (
    {"listeners": "PLAINTEXT://localhost:99999,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://localhost:-1,CONTROLLER://:9093"},
    {"authorizer.class.name": "foo"},
)
# Where Kafka's text is an accident of Java, or names what is not here.
OWN_WORDS = (
    "Missing required configuration",
    "begin 0, end -1",
    "For input string",
    "/ by zero",
    "KafkaPrincipalSerde",
    "could not be found.",
)


@pytest.mark.parametrize("case", golden("cases")["broker"], ids=lambda case: str(case["props"]))
def test_a_configuration_fares_as_in_kafka(case: dict[str, Any]) -> None:
    refusal = None
    try:
        config = load(with_changes(case["props"]))
    except ConfigError as error:
        refusal = error.problems
    if case["error"] is None:
        assert (refusal is not None) == (case["props"] in STRICTER), refusal
        if refusal is None:
            same_outcome(config, case.get("result", {}))
        return
    assert refusal is not None, case["error"]
    if not any(words in case["error"] for words in OWN_WORDS):
        text = case["error"].partition(": ")[2].removeprefix("requirement failed: ")
        why = text.partition(" for configuration ")[2].partition(": ")[2] if text.startswith("Invalid value") else text
        assert any(why in line for line in refusal), (why, refusal)


def same_outcome(config: BrokerConfig, expected: dict[str, Any]) -> None:
    if "listeners" in expected:
        assert [list(endpoint) for endpoint in config.endpoints.listeners] == expected["listeners"]
        assert [list(endpoint) for endpoint in config.advertised_broker_listeners] == expected["advertised"]
    if "dirs" in expected:
        assert list(config.data_dirs) == expected["dirs"]
    for name, text in expected.get("topic", {}).items():
        setting = TopicConfig.TABLE[name]
        value = config.inherited(setting)
        shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else render(setting.kind, value)
        assert shown == text, name
        assert getattr(config.topic_defaults, setting.attribute) == setting.typed(value)


def refusals(**changes: str | None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(node(**changes), strict=True)
    return caught.value.problems


def test_every_problem_is_named_at_once() -> None:
    assert refusals(node_id=None, log_segment_bytes="1000", auto_create_topics_enable="yes", num_partition="3") == (
        (
            "node.id: missing; it has no default. The node's id, unique in the cluster. "
            "Accepted: a whole number of 32 bits, [0,...]"
        ),
        "log.segment.bytes=1000: Value must be at least 1048576. Accepted: a whole number of 32 bits, [1048576,...]",
        "auto.create.topics.enable=yes: Expected value to be either true or false. Accepted: true or false",
        "num.partition: Kafka 4.3 has no such setting; did you mean num.partitions?",
    )


def test_cross_problems_are_named_at_once() -> None:
    assert refusals(log_retention_ms="0", queued_max_request_bytes="5", node_id="7") == (
        "log.retention.ms: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        "queued.max.request.bytes: queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        (
            "controller.quorum.voters: If process.roles contains the 'controller' role, the node id 7 must be included in "
            "the set of voters controller.quorum.voters=Set(1)"
        ),
    )


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "log.retention.hour",
            "1",
            "log.retention.hour: Kafka 4.3 has no such setting; did you mean log.retention.hours?",
        ),
        ("qwertz", "1", "qwertz: Kafka 4.3 has no such setting; remove the line, or see docs/configuration.md"),
        ("zookeeper.connect", "z:1", "zookeeper.connect: removed in Kafka 4.0; remove the line"),
        (
            "log.message.timestamp.difference.max.ms",
            "1",
            "log.message.timestamp.difference.max.ms: removed in Kafka 4.0; use log.message.timestamp.before.max.ms",
        ),
        (
            "listener.name.plaintext.max.connection",
            "1",
            (
                "listener.name.plaintext.max.connection: Kafka 4.3 has no such setting; "
                "did you mean listener.name.plaintext.max.connections?"
            ),
        ),
        (
            "listener.name.PLAINTEXT.max.connections",
            "1",
            (
                "listener.name.PLAINTEXT.max.connections: the listener's name must be in lower case here; "
                "write listener.name.plaintext.max.connections"
            ),
        ),
        (
            "listener.name.plaintext.max.connections",
            "x",
            (
                "listener.name.plaintext.max.connections=x: Not a number of type INT. "
                "Accepted: a whole number of 32 bits, [0,...]"
            ),
        ),
        (
            "compression.type",
            "brotli",
            (
                "compression.type=brotli: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer. "
                "Accepted: one of uncompressed, zstd, lz4, snappy, gzip, producer"
            ),
        ),
        (
            "authorizer.class.name",
            "com.example.Mine",
            (
                "authorizer.class.name=com.example.Mine: Java classes cannot be loaded here, and ignoring this class could "
                "allow what the class refuses. Accepted: nothing or org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            ),
        ),
        (
            "create.topic.policy.class.name",
            "com.example.Mine",
            (
                "create.topic.policy.class.name=com.example.Mine: Java classes cannot be loaded here, and ignoring this class "
                "could allow what the class refuses. Accepted: nothing: remove the line"
            ),
        ),
    ],
)
def test_a_bad_line_is_refused_with_its_reason(name: str, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({**node(), name: text}, strict=True)
    assert caught.value.problems == (line,)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("num.partition", "num.partition: Kafka 4.3 has no such setting; did you mean num.partitions?"),
        ("zookeeper.connect", "zookeeper.connect: removed in Kafka 4.0; remove the line"),
        (
            "confluent.license",
            "confluent.license: Kafka 4.3 has no such setting; remove the line, or see docs/configuration.md",
        ),
        (
            "listener.name.PLAINTEXT.max.connections",
            (
                "listener.name.PLAINTEXT.max.connections: the listener's name must be in lower case here; "
                "write listener.name.plaintext.max.connections"
            ),
        ),
    ],
)
def test_an_unknown_name_is_accepted_and_told(name: str, line: str) -> None:
    config = load({**node(), name: "anything"})
    assert unknown_lines(config.layers.static) == [line]


def test_names_of_plug_ins_are_not_reported() -> None:
    properties = {**node(), "rsm.config.a": "x", "config.providers.f.class": "x", "metrics.context.z": "1"}
    assert unknown_lines(load(properties).layers.static) == []


def test_the_error_has_a_line_per_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("node.id=x\nprocess.roles=nobody\n")
    assert str(caught.value).splitlines() == list(caught.value.problems)
    assert len(caught.value.problems) == 3


def test_a_malformed_escape_is_one_problem() -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        load_text("node.id=\\u12")


# The names and values of the file that Kafka 4.x ships as config/server.properties.
SHIPPED = """
# Licensed, commented, as such files are
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_the_file_that_kafka_ships_loads_unchanged() -> None:
    config = load_text(SHIPPED)
    assert config.node_id == config.broker_id == 1
    assert config.is_broker
    assert config.is_controller
    assert config.endpoints.listeners[0] == Endpoint("PLAINTEXT", "PLAINTEXT", None, 9092)
    assert config.controller_listeners == (Endpoint("CONTROLLER", "PLAINTEXT", None, 9093),)
    assert config.advertised_broker_listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)
    assert config.advertised_controller_listeners == (Endpoint("CONTROLLER", "PLAINTEXT", "localhost", 9093),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.voters == {}
    assert config.data_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_dir == "/tmp/kraft-combined-logs"
    assert config.topic_defaults.retention_ms == 168 * 3_600_000


def test_settings_without_effect_are_told_in_one_line() -> None:
    config = load_text(SHIPPED)
    assert [name for name, _ in ineffective(config)] == [
        "num.network.threads",
        "num.io.threads",
        "socket.send.buffer.bytes",
        "socket.receive.buffer.bytes",
        "num.recovery.threads.per.data.dir",
    ]
    assert no_effect_line(config) == (
        "no effect here: num.network.threads, num.io.threads, num.recovery.threads.per.data.dir (one event loop does "
        "this work; there are no thread pools); socket.send.buffer.bytes, socket.receive.buffer.bytes (the operating "
        "system sizes socket buffers)"
    )
    assert no_effect_line(load(node())) is None


def test_names_of_plug_ins_are_known() -> None:
    config = load({**node(), "rsm.config.bucket": "b", "metrics.context.x": "y", "super.users": "User:a;User:b"})
    assert config.super_users == "User:a;User:b"
    assert [name for name, _ in ineffective(config)] == ["rsm.config.bucket", "metrics.context.x"]


def test_a_listener_sees_its_own_settings() -> None:
    config = load(
        {
            **node(),
            "max.connections": "100",
            "listener.name.plaintext.max.connections": "5",
            "listener.name.plaintext.plain.sasl.jaas.config": "plain",
            "sasl.jaas.config": "any",
        }
    )
    assert config.for_listener("PLAINTEXT").max_connections == 5
    assert config.for_listener("CONTROLLER").max_connections == 100
    assert config.mechanism_value("PLAINTEXT", "PLAIN", "sasl.jaas.config") == "plain"
    assert config.mechanism_value("CONTROLLER", "PLAIN", "sasl.jaas.config") == "any"


def test_voters_and_limits_are_typed() -> None:
    config = load(
        node(
            controller_quorum_voters="1@localhost:9093,2@[::1]:9094",
            max_connections_per_ip_overrides="127.0.0.1:5, ::1:6",
        )
    )
    assert config.voters == {1: ("localhost", 9093), 2: ("::1", 9094)}
    assert config.connection_limits == {"127.0.0.1": 5, "::1": 6}


def test_an_endpoint_prints_as_it_is_written() -> None:
    assert str(Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092)) == "PLAINTEXT://[::1]:9092"
    assert str(Endpoint("PLAINTEXT", "PLAINTEXT", None, 9092)) == "PLAINTEXT://:9092"
