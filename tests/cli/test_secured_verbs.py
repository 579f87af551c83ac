"""Verbs on a node with logins, TLS and ACLs: rights that a verb needs, passwords that are refused, and a quiet log."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.backup.manifest import Manifest
from ottla.cli.backup.store import BackupStore
from ottla.cli.commands import ottla
from ottla.cli.options import reachability
from ottla.testing import Broker
from tests.cli.test_json_of_every_verb import CALLS, VERBS
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
PIPELINE = """
from ottla.pipelines import Pipeline, topic
p = Pipeline("p")

@p.step(reads={"rows": topic("t", value="text")}, writes=topic("u", value="text"))
def copy(rows):
    return rows
"""


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


ELSEWHERE = {
    "pipeline repartition": "reads its checkpoint first",
    "pipeline reset": "reads its checkpoint first",
    "pipeline switch": "reads its checkpoint first",
    "profile set": "stores an address",
    **{verb: "asks the registry only" for verb in VERBS if verb.startswith("schema ")},
}
WORDS = {
    **CALLS,
    "bench": "-n 500",
    "cluster reassign": "t --factor 1",
    "connect run": "connector.yaml --once",
    "console": "--listen 127.0.0.1:0",
    "consume": "t -e -g g",
    "pipeline backfill": "pipe.py",
    "pipeline run": "pipe.py --once",
    "pipeline start": "pipe.py",
    "registry": "--listen 127.0.0.1:0 --alone",
    "sql": "'select * from t'",
    "top": "--count 1",
}
CONNECTING = sorted(
    verb
    for verb, command in VERBS.items()
    if any("-b" in option.opts for option in command.params) and verb not in ELSEWHERE
)


def test_every_verb_that_connects_has_a_profile() -> None:
    assert [verb for verb in CONNECTING if not any("--profile" in option.opts for option in VERBS[verb].params)] == []
    assert len(CONNECTING) > 40


@pytest.mark.parametrize("verb", CONNECTING)
def test_a_wrong_password_is_refused_by_name(
    broker: Broker, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: a time-out is a different sentence. The login comes from a profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_CONSOLE_REGISTRY", "")
    (tmp_path / "t.jsonl").write_text('{"value": "x"}\n')
    (tmp_path / "pipe.py").write_text(PIPELINE)
    (tmp_path / "connector.yaml").write_text("name: c\nconnector.class: file-source\nfile: t.jsonl\ntopic: t\n")
    if verb == "backup restore":
        BackupStore("backups").save(Manifest(name="9", cluster_id="c", complete=True))
    call("profile", "set", "wrong", *login(broker, "alice", "wrong"))
    words = [*verb.split(), *shlex.split(WORDS[verb]), "--profile", "wrong"]
    assert "Authentication failed" in call(*words, code=1).output


def test_a_broker_that_is_too_slow_for_the_doctor_has_refused_the_login(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "_DIAGNOSIS_S", 0.0)
    assert "Authentication failed" in call("topic", "list", *login(broker, "alice", "wrong"), code=1).output


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
