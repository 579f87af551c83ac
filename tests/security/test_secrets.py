"""Secrets are nowhere to be seen: logs, describe output, error messages, tracebacks, process arguments, plain files."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import subprocess
import traceback
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from ottla.cli.verbs.doctor import doctor
from ottla.env import logging
from ottla.env.config.load import load
from ottla.env.config.problems import ConfigError
from ottla.protocol.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.security.jaas import JaasError, parse_jaas
from ottla.security.web import hash_password
from ottla.testing import Broker
from tests.interop.ottla_server import OttlaServer
from tests.robustness.server_process import COMMAND, environment, ottla
from tests.security import test_audit as audit
from tests.security.secured import PLAIN_MODULE, Certificates, jaas
from tests.security.session import Closed, Session
from tests.support.ports import free_port

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
USER, STORE, TOKEN, DYNAMIC = "S3cret-user-pw", "S3cret-store-pw", "S3cret-token-key", "S3cret-dynamic"
MASTER = base64.b64encode(b"S3cret-master-key-of-32-bytes!!!").decode()
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJTM2NyZXQtand0In0.UzNjcmV0LXNpZ25hdHVyZQ"
SECRETS = (USER, STORE, TOKEN, DYNAMIC, "S3cret-guess", MASTER, JWT, JWT.split(".")[1], JWT.split(".")[2])


@pytest.mark.timeout(180)
def test_a_running_server_tells_none(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    server = OttlaServer(tmp_path / "server")
    sasl = free_port()
    (tmp_path / "jwks").write_text('{"keys":[]}')
    (tmp_path / "master").write_text(f"m1:{MASTER}\n")
    keys = f"file://{tmp_path}/jwks"
    plain = f"PLAINTEXT://127.0.0.1:{server.port}"
    server.properties |= {
        "listeners": f"{plain},SASL_SSL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{server.controller_port}",
        "advertised.listeners": f"{plain},SASL_SSL://127.0.0.1:{sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": jaas(OAUTH_MODULE),
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "ottla.sasl.oauthbearer.allowed.urls": keys,
        "ottla.encryption.master.key.file": str(tmp_path / "master"),
        "ottla.audit.enable": "true",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas(PLAIN_MODULE, user_alice=USER),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("server")),
        "ssl.key.password": STORE,
        "delegation.token.secret.key": TOKEN,
    }
    import ssl

    context = ssl.create_default_context(cafile=str(certificates.authority_file))
    server.start()
    try:
        with Session(sasl, context=context) as session:
            session.handshake("PLAIN")
            refused = session.authenticate(b"\0alice\0S3cret-guess")
            assert refused.error_code == 58
            assert_clean(repr(refused))
        with Session(sasl, context=context) as session, contextlib.suppress(Closed):
            session.handshake("PLAIN")
            session.authenticate(b"\xff\xfe\0S3cret-guess\0\0\0")
        with Session(sasl, context=context) as session:
            session.handshake("OAUTHBEARER")
            session.authenticate(b"n,,\x01auth=Bearer " + JWT.encode() + b"\x01\x01")
            assert_clean(repr(session.authenticate(b"\x01")))
        (tmp_path / "master").write_text(f"m1:{MASTER}\nnot a key {MASTER}\n")  # a mistake while it runs
        with Session(sasl, context=context).plain("alice", USER) as session:
            name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
            for value in (jaas(PLAIN_MODULE, user_alice=USER, user_bob=DYNAMIC), f"broken {DYNAMIC}"):
                resource = AlterConfigsResource(4, "1", [AlterableConfig(name, 0, value)])
                assert_clean(repr(session.ask(IncrementalAlterConfigsRequest([resource]), 1)))
            described = session.ask(DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)], True, True), 4)
            assert described.results[0].configs
            assert_clean(repr(described))
        arguments, environment = shown(server.pid)
    finally:
        server.stop()
    log = server.log_file.read_text()
    assert "authentication.failed" in log
    assert "token.refused" in log
    for text in (log, arguments, environment):
        assert_clean(text)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("command", ["registry", "console"])
def test_the_http_servers_tell_none(tmp_path: Path, command: str) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{USER}\nbob:read:{hash_password(STORE)}\n")
    with Broker() as broker:
        words = [command, "--bootstrap-servers", broker.bootstrap_servers, "--listen", "127.0.0.1:0", "--users", users]
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            said = []
            for text in process.stdout:
                said.append(text)
                if " is up at " in text:
                    break
            url = said[-1].split(" at ")[1].strip().rstrip("/")
            path = "/subjects" if command == "registry" else "/topics"
            with httpx.Client(base_url=url, timeout=30) as client:
                assert client.get(path, auth=("bob", STORE)).status_code == 200
                answers = [
                    client.get(path, auth=("ann", "S3cret-guess")),
                    client.get(path, headers={"Authorization": f"Bearer {JWT}"}),
                    client.get(path, headers={"Authorization": f"Basic {USER}"}),
                ]
                users.write_text(f"ann:emperor:{USER}\n")  # a mistake while it runs
                answers.append(client.get(path, auth=("ann", USER)))
            assert all(answer.status_code >= 400 for answer in answers)
            for answer in answers:
                assert_clean(answer.text + str(answer.headers))
            assert_clean(shown(process.pid)[0])
        finally:
            process.terminate()
            rest, _ = process.communicate(timeout=20)
    assert_clean("".join(said) + rest)


def shown(pid: int) -> tuple[str, str]:
    """What others see of a process: its arguments and its environment."""
    if not Path("/proc/self").exists():  # macOS
        options = (["-ww"], ["eww"])
        words = ([*option, "-o", "command=", "-p", str(pid)] for option in options)
        one, both = (subprocess.check_output(["ps", *some], text=True) for some in words)
        return one, both
    folder = Path(f"/proc/{pid}")
    return (folder / "cmdline").read_bytes().decode(), (folder / "environ").read_bytes().decode()


def assert_clean(text: str) -> None:
    found = [secret for secret in SECRETS if secret in text]
    assert not found, f"{found} in {text[:2000]}"


@pytest.mark.timeout(180)
def test_the_finest_log_the_audit_topic_and_doctor_tell_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logins that fail and succeed, a new password, a setting that holds one: at the level debug too."""
    finest = io.StringIO()
    monkeypatch.setattr(logging, "_sink", logging._Sink(finest, 10, json=False))
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    settings = {**audit.PROPERTIES, name: jaas(PLAIN_MODULE, user_admin=USER), "delegation.token.secret.key": TOKEN}
    with Broker(properties=settings) as broker:
        port = broker.node.ports["SASL_PLAINTEXT"]
        with Session(port) as session:
            session.handshake("PLAIN")
            session.authenticate(b"\0admin\0S3cret-guess")
        with Session(port).plain("admin", USER) as session:
            salted = ScramCredentialUpsertion("carol", 1, 4096, b"salt", DYNAMIC.encode())
            session.ask(AlterUserScramCredentialsRequest([], [salted]), 0)
            resource = AlterConfigsResource(4, "1", [AlterableConfig(name, 0, jaas(PLAIN_MODULE, user_bob=DYNAMIC))])
            session.ask(IncrementalAlterConfigsRequest([resource]), 1)
        servers = f"127.0.0.1:{broker.node.ports['PLAINTEXT']}"
        told = audit.events(servers, 4)
        assert len(told) >= 4
        security = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=admin"]
        options = [word for each in (*security, f"sasl.password={USER}") for word in ("-X", each)]
        examined = CliRunner().invoke(doctor, ["-b", f"127.0.0.1:{port}", *options])
        assert examined.output
    assert " debug " in finest.getvalue()
    for text in (finest.getvalue(), json.dumps(told), examined.output):
        assert_clean(text)
        assert DYNAMIC.encode().hex() not in text
        assert base64.b64encode(DYNAMIC.encode()).decode() not in text


def test_errors_and_tracebacks_tell_none(tmp_path: Path) -> None:
    base = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "listeners": "PLAINTEXT://:0,CONTROLLER://:0",
    }
    config = load({**base, "ssl.keystore.password": STORE, "delegation.token.secret.key": TOKEN})
    assert_clean(repr(config))
    for text in (
        f'X required password="{USER}";',
        f'{PLAIN_MODULE} required password="{USER}',
        f"{USER}",
        f"{PLAIN_MODULE} {USER};",
    ):
        try:
            parse_jaas(text)
        except JaasError as error:
            if USER not in text.split()[0] and f"{PLAIN_MODULE} {USER}" not in text:
                assert_clean("".join(traceback.format_exception(error)[-1:]))
        else:
            pytest.fail("was taken")
    try:
        load({**base, "ssl.keystore.password": STORE, "nonsense": "1"}, strict=True)
    except ConfigError as error:
        assert_clean(str(error))
    else:
        pytest.fail("was taken")


def test_a_refused_add_scram_does_not_repeat_it(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:0,CONTROLLER://:0\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        f"log.dirs={tmp_path}/data\n"
    )
    for argument in (
        f"SCRAM-SHA-256=[name=a,password={USER},iterations=1]",
        f"SCRAM-SHA-256=[password={USER}]",
        f"SCRAM-SHA-1=[name=a,password={USER}]",
        f"SCRAM-SHA-256=[name=a,password={USER},colour=red]",
    ):
        done = ottla("storage", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", config, "--standalone", "-S", argument)
        assert done.returncode != 0
        assert_clean(done.stdout + done.stderr)
    assert not (tmp_path / "data").exists()
