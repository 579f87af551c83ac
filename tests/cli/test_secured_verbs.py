"""Verbs on a node with logins, TLS and ACLs: rights that a verb needs, passwords that are refused, and a quiet log."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.commands import ottla
from ottla.testing import Broker
from tests.security.secured import (
    ADMIN_PASSWORD,
    PASSWORD,
    PLAIN_MODULE,
    Certificates,
    address,
    four_listeners,
    jaas,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[Broker]:
    properties = {
        **four_listeners(certificates),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with Broker(properties=properties) as running:
        yield running


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path / "config"))


def login(broker: Broker, user: str, password: str, listener: str = "SASL_PLAINTEXT") -> list[str]:
    words = ["-b", address(broker, listener), "-X", f"security.protocol={listener}", "-X", "sasl.mechanism=PLAIN"]
    return [*words, "-X", f"sasl.jaas.config={jaas(PLAIN_MODULE, username=user, password=password)}"]


def call(*words: str, code: int = 0, stdin: str = "") -> Result:
    done = CliRunner().invoke(ottla, list(words), input=stdin)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done


def test_consume_without_a_group_needs_no_right_on_a_group(broker: Broker) -> None:
    admin, alice = login(broker, "admin", ADMIN_PASSWORD), login(broker, "alice", PASSWORD)
    call("topic", "create", "read", "--partitions", "1", *admin)
    call("produce", "read", *admin, stdin="a\nb\n")
    call("acl", "allow", "User:alice", "topic", "read", "read", "describe", *admin)
    assert call("consume", "read", "-e", "-f", "%v\\n", *alice).stdout == "a\nb\n"
    assert "Group authorization failed" in call("consume", "read", "-g", "g", "-e", *alice, code=1).output


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "read", "-e"),
        ("consume", "read", "-e", "-g", "g"),
        ("produce", "read", "x"),
        ("topic", "list"),
        ("group", "list"),
        ("export", "read", "out.jsonl"),
        ("bench", "-n", "500"),
        ("top", "--count", "1"),
        ("sql", "select * from read"),
    ],
    ids=lambda words: " ".join(words[:1]),
)
def test_a_wrong_password_is_refused_by_name(broker: Broker, words: tuple[str, ...], tmp_path: Path) -> None:
    """A time-out is a different sentence."""
    words = tuple(str(tmp_path / word) if word == "out.jsonl" else word for word in words)
    assert "Authentication failed" in call(*words, *login(broker, "alice", "wrong"), code=1).output


def test_a_user_gets_the_mechanism_of_the_brokers_and_is_tried(broker: Broker) -> None:
    admin = login(broker, "admin", ADMIN_PASSWORD)
    secret = 'p"a\\s s'
    done = call("user", "add", "dora", *admin, stdin=f"{secret}\n{secret}\n")
    assert "dora can log in with SCRAM-SHA-512" in done.output
    done = call("user", "add", "dora", "-b", address(broker, "PLAINTEXT"), stdin="x\nx\n")
    assert "stored SCRAM-SHA-512 for dora (not tried: this connection has no login)" in done.output


def test_no_scram_at_the_brokers_is_said() -> None:
    with Broker(properties={"sasl.enabled.mechanisms": "PLAIN"}) as plain:
        done = call("user", "add", "eve", "-b", plain.bootstrap_servers, stdin="x\nx\n")
    assert "the brokers accept PLAIN only, so eve cannot log in yet" in done.output


def test_a_look_at_a_tls_port_leaves_no_warning(
    broker: Broker, certificates: Certificates, capfd: pytest.CaptureFixture[str]
) -> None:
    trust = ["-X", "security.protocol=SSL", "-X", f"ssl.truststore.location={certificates.authority_file}"]
    call("topic", "list", "-b", address(broker, "SSL"), *trust, "-X", "ssl.truststore.type=PEM")
    assert "tls.refused" not in capfd.readouterr().err
    host, _, port = address(broker, "SSL").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(b"no client hello\r\n")
        while stranger.recv(4096):
            pass
    assert "tls.refused" in capfd.readouterr().err
