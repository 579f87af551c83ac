"""Kafka's own tools against a secured Ottla: kafka-configs, kafka-acls, kafka-delegation-tokens, the console clients."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.security.secured import (
    ADMIN_PASSWORD,
    PASSWORD,
    PLAIN_MODULE,
    SCRAM_MODULE,
    USERS,
    Certificates,
    address,
    jaas,
    plain_users,
    tls_properties,
)
from tests.support.kafka_tools import ConfigCommand, ConsoleConsumer, ConsoleProducer, TopicCommand

AclCommand = "org.apache.kafka.tools.AclCommand"
DelegationTokenCommand = "org.apache.kafka.tools.DelegationTokenCommand"
Tool = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[Broker]:
    properties = {
        "listeners": "SASL_SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain_users(USERS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "the-secret-of-all-tokens",
        **tls_properties(certificates),
    }
    with Broker(properties=properties) as running:
        yield running


def client(tmp_path: Path, certificates: Certificates, mechanism: str, entry: str) -> str:
    path = tmp_path / f"client-{abs(hash(entry))}.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={entry}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={certificates.authority_file}\n"
        "default.api.timeout.ms=20000\nrequest.timeout.ms=15000\n"
    )
    return str(path)


def test_the_tools(broker: Broker, certificates: Certificates, tmp_path: Path, kafka_tool: Tool) -> None:
    servers = address(broker, "SASL_SSL")

    def plain(name: str, password: str) -> str:
        return client(tmp_path, certificates, "PLAIN", jaas(PLAIN_MODULE, username=name, password=password))

    admin = plain("admin", ADMIN_PASSWORD)

    def tool(name: str, *words: str, config: str = admin, stdin: str = "") -> str:
        done = kafka_tool(name, "--bootstrap-server", servers, "--command-config", config, *words, input=stdin)
        return done.stdout + done.stderr

    assert "Created topic" in tool(TopicCommand, "--create", "--topic", "tools")
    # SCRAM users
    added = tool(
        ConfigCommand, "--alter", "--add-config", f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}]",
        "--entity-type", "users", "--entity-name", "carol",
    )  # fmt: skip
    assert "Completed updating config for user carol" in added, added
    shown = tool(ConfigCommand, "--describe", "--entity-type", "users", "--entity-name", "carol")
    assert "SCRAM-SHA-512=iterations=8192" in shown
    assert PASSWORD not in shown
    carol = client(tmp_path, certificates, "SCRAM-SHA-512", jaas(SCRAM_MODULE, username="carol", password=PASSWORD))
    # Without an ACL carol sees nothing and may do nothing
    assert "tools" not in tool(TopicCommand, "--list", config=carol)
    refused = kafka_tool(
        ConsoleProducer, "--bootstrap-server", servers, "--command-config", carol, "--topic", "tools", input="x\n"
    )
    assert "TopicAuthorizationException" in refused.stdout + refused.stderr
    # ACLs
    listing = tool(AclCommand, "--add", "--allow-principal", "User:carol", "--producer", "--topic", "tools")
    assert "User:carol" in listing
    tool(AclCommand, "--add", "--allow-principal", "User:carol", "--consumer", "--topic", "tools", "--group", "*")
    tool(
        AclCommand, "--add", "--deny-principal", "User:carol", "--operation", "Delete", "--topic", "to",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    listing = tool(AclCommand, "--list")
    assert "ResourcePattern(resourceType=TOPIC, name=tools, patternType=LITERAL)" in listing
    assert "operation=DELETE, permissionType=DENY" in listing
    kafka_tool(
        ConsoleProducer, "--bootstrap-server", servers, "--command-config", carol, "--topic", "tools",
        input="hello\nworld\n",
    )  # fmt: skip
    read = kafka_tool(
        ConsoleConsumer, "--bootstrap-server", servers, "--command-config", carol, "--topic", "tools",
        "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000",
    )  # fmt: skip
    assert read.stdout.split()[:2] == ["hello", "world"], read.stdout + read.stderr
    # Delegation tokens
    made = tool(
        DelegationTokenCommand,
        "--create",
        "--max-life-time-period",
        "-1",
        "--renewer-principal",
        "User:carol",
        config=carol,
    )
    match = re.search(r"(?m)^(\S{22})\s+(\S+==)\s+User:carol", made)
    assert match is not None, made
    token_id, secret = match.groups()
    by_token = client(
        tmp_path, certificates, "SCRAM-SHA-256",
        jaas(SCRAM_MODULE, username=token_id, password=secret, tokenauth="true"),
    )  # fmt: skip
    assert "tools" in tool(TopicCommand, "--list", config=by_token)
    not_allowed = tool(DelegationTokenCommand, "--create", "--max-life-time-period", "-1", config=by_token)
    assert "DelegationTokenAuthorizationException" in not_allowed or "not allowed" in not_allowed, not_allowed
    assert token_id in tool(DelegationTokenCommand, "--describe", "--owner-principal", "User:carol", config=carol)
    expired = tool(DelegationTokenCommand, "--expire", "--expiry-time-period", "-1", "--hmac", secret, config=carol)
    assert "Completed expire operation" in expired, expired
    gone = tool(TopicCommand, "--list", config=by_token)
    assert "Authentication failed" in gone, gone
    # A revoked ACL
    tool(AclCommand, "--remove", "--force", "--allow-principal", "User:carol", "--producer", "--topic", "tools")
    refused = kafka_tool(
        ConsoleProducer, "--bootstrap-server", servers, "--command-config", carol, "--topic", "tools", input="x\n"
    )
    assert "AuthorizationException" in refused.stdout + refused.stderr
    # A wrong password
    wrong = tool(TopicCommand, "--list", config=plain("admin", "wrong"))
    assert "Authentication failed: Invalid username or password" in wrong
    # Quotas
    tool(
        ConfigCommand,
        "--alter",
        "--add-config",
        "producer_byte_rate=1048576",
        "--entity-type",
        "users",
        "--entity-name",
        "carol",
    )
    quotas = tool(ConfigCommand, "--describe", "--entity-type", "users", "--entity-name", "carol")
    assert "producer_byte_rate=1048576.0" in quotas
