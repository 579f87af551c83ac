"""A quarantine topic is no way around ACLs: who names it, and whose records go there, need WRITE on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from ottla.model.acls import Operation, Permission, ResourceType
from ottla.model.acls import PatternType as Pattern
from ottla.protocol.api import encode_request, response_class
from ottla.protocol.generated import alter_configs_request as legacy
from ottla.protocol.generated.create_acls_request import AclCreation, CreateAclsRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.envelope_request import EnvelopeRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.primitives import skip_tags
from ottla.server.cluster.controller_channel import encode_principal
from ottla.testing import Broker
from tests.security.secured import PLAIN_MODULE, address, jaas
from tests.security.session import Session

USERS = jaas(PLAIN_MODULE, username="node", password="n", user_node="n", user_eve="e", user_ada="a")
TOPIC, MODE, TARGET = 2, "ottla.schema.validation", "ottla.schema.quarantine.topic"
REFUSED, INVALID_CONFIG = 29, 40
BAD = b"no schema id"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:node",
        "ottla.schema.registry.url": "http://127.0.0.1:9",  # nothing asks it: the records carry no id at all
    }
    with Broker(properties=settings) as running:
        with Session(running.node.ports["SASL_PLAINTEXT"]).plain("node", "n") as admin:
            topic, prefixed, allow = ResourceType.TOPIC, Pattern.PREFIXED, Permission.ALLOW
            rights = [
                ("User:eve", "eve-", Operation.ALL), ("User:ada", "eve-", Operation.WRITE),
                ("User:ada", "eve-", Operation.DESCRIBE),
            ]  # fmt: skip
            creations = [
                AclCreation(topic, name, prefixed, principal, "*", operation, allow)
                for principal, name, operation in rights
            ]
            creations.append(AclCreation(topic, "payroll", Pattern.LITERAL, "User:root", "*", Operation.ALL, allow))
            assert all(r.error_code == 0 for r in admin.ask(CreateAclsRequest(creations), 3).results)
        make(running, "payroll", {})
        yield running


def make(broker: Broker, name: str, config: dict[str, str]) -> None:
    """By the super user."""
    with Session(broker.node.ports["PLAINTEXT"]) as root:
        assert root.ask(create(config, name)).topics[0].error_code == 0


@pytest.fixture
def eve(broker: Broker) -> Iterator[Session]:
    with Session(broker.node.ports["SASL_PLAINTEXT"]).plain("eve", "e") as session:
        yield session


def create(settings: dict[str, str], name: str | None = None) -> CreateTopicsRequest:
    configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
    name = name or f"eve-{uuid.uuid4().hex[:8]}"
    return CreateTopicsRequest([CreatableTopic(name, 1, 1, [], configs)], 20_000)


def change(name: str, settings: dict[str, str]) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        [AlterConfigsResource(TOPIC, name, [AlterableConfig(key, 0, value) for key, value in settings.items()])]
    )


def replace(name: str, settings: dict[str, str]) -> legacy.AlterConfigsRequest:
    configs = [legacy.AlterableConfig(key, value) for key, value in settings.items()]
    return legacy.AlterConfigsRequest([legacy.AlterConfigsResource(TOPIC, name, configs)])


def enveloped(broker: Broker, request: Any) -> Any:
    """As another broker hands it on: the node logs in, the principal in the envelope is eve's."""
    frame = b"".join(bytes(piece) for piece in encode_request(request, request.MAX_VERSION, 7, "c"))
    with Session(broker.node.ports["CONTROLLER"]) as node:
        answer = node.ask(EnvelopeRequest(frame[4:], encode_principal("User:eve"), b"\x7f\0\0\1"), 0)
    assert answer.error_code == 0
    decoded, _ = response_class(request.API_KEY).decode(
        answer.response_data, skip_tags(answer.response_data, 4), request.MAX_VERSION
    )
    return decoded


@pytest.mark.timeout(180)
@pytest.mark.parametrize("forwarded", [False, True])
def test_to_name_a_quarantine_topic_needs_write_on_it(broker: Broker, eve: Session, forwarded: bool) -> None:
    def ask(request: Any) -> Any:
        return enveloped(broker, request) if forwarded else eve.ask(request)

    name = f"eve-{uuid.uuid4().hex[:8]}"
    assert ask(create({MODE: "quarantine", TARGET: "payroll"}, name)).topics[0].error_code == REFUSED
    assert ask(create({MODE: "quarantine", TARGET: "eve-aside"}, name)).topics[0].error_code == 0
    for request in (change(name, {TARGET: "payroll"}), replace(name, {MODE: "quarantine", TARGET: " payroll "})):
        answer = ask(request).responses[0]
        assert answer.error_code == REFUSED
        assert "User:eve needs WRITE on the quarantine topic payroll" in answer.error_message
    assert ask(change(name, {TARGET: "eve-elsewhere"})).responses[0].error_code == 0
    assert ask(replace(name, {})).responses[0].error_code == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("target", ["__consumer_offsets", "__transaction_state", "__ottla_audit", "a/b", "itself"])
def test_no_one_names_a_topic_of_the_cluster_or_the_topic_itself(broker: Broker, target: str) -> None:
    name = f"eve-{uuid.uuid4().hex[:8]}"
    with Session(broker.node.ports["PLAINTEXT"]) as root:
        request = create({TARGET: name if target == "itself" else target}, name)
        assert root.ask(request).topics[0].error_code == INVALID_CONFIG


@pytest.mark.timeout(180)
def test_the_producer_needs_write_on_the_quarantine_topic(broker: Broker) -> None:
    """An administrator sends bad records of eve-* to payroll; a producer without WRITE there does not reach it."""
    name = f"eve-{uuid.uuid4().hex[:8]}"
    make(broker, name, {MODE: "quarantine", TARGET: "payroll"})
    error = produced(broker, name, "ada", "a")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert end(broker, "payroll") == 0
    assert produced(broker, name, "node", "n") is None, "the super user may"
    assert end(broker, "payroll") == 1


@pytest.mark.timeout(180)
def test_the_producer_needs_create_for_a_quarantine_topic_that_is_missing(broker: Broker) -> None:
    """The node created it in its own name, for producers that may create nothing."""
    name = f"eve-{uuid.uuid4().hex[:8]}"
    make(broker, name, {MODE: "quarantine"})
    error = produced(broker, name, "ada", "a")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.node.broker is not None
    assert f"{name}.quarantine" not in broker.node.broker.image.topics_by_name
    assert produced(broker, name, "eve", "e") is None, "eve has ALL on eve-*"
    assert produced(broker, name, "ada", "a") is None, "the topic exists, and WRITE is enough"
    assert end(broker, f"{name}.quarantine") == 2


@pytest.mark.timeout(180)
def test_a_quarantine_topic_that_checks_schemas_itself_takes_nothing(broker: Broker) -> None:
    """Two topics that are each other's quarantine would hand a record on for ever."""
    names = [f"eve-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for name, other in zip(names, reversed(names), strict=True):
        make(broker, name, {MODE: "quarantine", TARGET: other})
    error = produced(broker, names[0], "node", "n")
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    assert [end(broker, name) for name in names] == [0, 0]


def produced(broker: Broker, topic: str, user: str, password: str) -> KafkaError | None:
    settings = {
        "bootstrap.servers": address(broker, "SASL_PLAINTEXT"), "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password, "message.timeout.ms": 20_000,
    }  # fmt: skip
    producer = Producer(settings)
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, BAD, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(40) == 0
    return outcomes[0]


def end(broker: Broker, topic: str) -> int:
    running = broker.node.broker
    assert running is not None
    return running.replicas.get(topic, 0).log.log_end_offset
