"""Secrets are nowhere to be seen: logs, describe output, error messages, tracebacks, process arguments, plain files."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

import pytest

from ottla.env.config.load import load
from ottla.env.config.problems import ConfigError
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.security.jaas import JaasError, parse_jaas
from tests.interop.ottla_server import OttlaServer
from tests.robustness.server_process import ottla
from tests.security.secured import PLAIN_MODULE, Certificates, jaas
from tests.security.session import Closed, Session
from tests.support.apache_kafka import free_port

USER, STORE, TOKEN, DYNAMIC = "S3cret-user-pw", "S3cret-store-pw", "S3cret-token-key", "S3cret-dynamic"
SECRETS = (USER, STORE, TOKEN, DYNAMIC, "S3cret-guess")


@pytest.mark.timeout(90)
def test_a_running_server_tells_none(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    server = OttlaServer(tmp_path / "server")
    sasl = free_port()
    plain = f"PLAINTEXT://127.0.0.1:{server.port}"
    server.properties |= {
        "listeners": f"{plain},SASL_SSL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{server.controller_port}",
        "advertised.listeners": f"{plain},SASL_SSL://127.0.0.1:{sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
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
        with Session(sasl, context=context).plain("alice", USER) as session:
            name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
            for value in (jaas(PLAIN_MODULE, user_alice=USER, user_bob=DYNAMIC), f"broken {DYNAMIC}"):
                resource = AlterConfigsResource(4, "1", [AlterableConfig(name, 0, value)])
                assert_clean(repr(session.ask(IncrementalAlterConfigsRequest([resource]), 1)))
            described = session.ask(DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)], True, True), 4)
            assert described.results[0].configs
            assert_clean(repr(described))
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes().decode()
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().decode()
    finally:
        server.stop()
    log = server.log_file.read_text()
    assert "authentication.failed" in log
    for text in (log, arguments, environment):
        assert_clean(text)


def assert_clean(text: str) -> None:
    found = [secret for secret in SECRETS if secret in text]
    assert not found, f"{found} in {text[:2000]}"


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
        load({**base, "ssl.keystore.password": STORE, "nonsense": "1"})
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
