"""What has let people into Kafka before, each tried here under its own name (the list is in docs/security.md)."""

from __future__ import annotations

import base64
import hmac
import inspect
import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jwt

from ottla.broker.login.sasl_gate import SaslGate
from ottla.env.config.load import load
from ottla.protocol.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.generated.create_acls_request import AclCreation, CreateAclsRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records_build import SimpleRecord, build_batch
from ottla.security import jwks, plain, scram
from ottla.security.jaas import JaasError, parse_jaas
from ottla.security.jwks import JwksError, check_allowed
from ottla.security.sasl import SaslFailure
from ottla.security.scram import ScramClient, ScramServer, ScramUser, new_credential, salted_password
from ottla.server.errors import StartupError
from ottla.server.node import Node
from ottla.testing import Broker
from tests.security.secured import PASSWORD, PLAIN_MODULE, SCRAM_MODULE, USERS, jaas, plain_users
from tests.security.session import Closed, Session

SASL_AUTHENTICATION_FAILED = 58


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("keys")
    key = jwk.RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
    (directory / "jwks.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    (directory / "private.json").write_text(json.dumps(key.as_dict(private=True)))
    url = f"file://{directory}/jwks.json"
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users(USERS),
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": jaas(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": "us",
        "sasl.oauthbearer.expected.audience": "kafka",
        "ottla.sasl.oauthbearer.allowed.urls": url,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "connection.failed.authentication.delay.ms": "20",
        "connections.max.reauth.ms": "2500",
    }
    with Broker(properties=properties) as running:
        running.private_key = directory / "private.json"  # type: ignore[attr-defined]
        with Session(running.node.ports["PLAINTEXT"]) as admin:
            salt = b"s" * 16
            salted = salted_password("SCRAM-SHA-256", PASSWORD, salt, 4096)
            request = AlterUserScramCredentialsRequest([], [ScramCredentialUpsertion("alice", 1, 4096, salt, salted)])
            assert admin.ask(request, 0).results[0].error_code == 0
            assert admin.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 10_000), 5).topics[0].error_code == 0
        yield running


def login(broker: Broker) -> Session:
    return Session(broker.node.ports["SASL_PLAINTEXT"])


def test_cve_2022_34917_memory_before_authentication(broker: Broker) -> None:
    """Large frames are refused when they are announced, and what a peer can leave here is some 16 KiB."""
    for size in (16 * 1024 + 1, 100 * 1024 * 1024, 2**31 - 1):
        with login(broker) as session:
            session.socket.sendall(struct.pack(">i", size) + b"x" * 100)
            with pytest.raises(Closed):
                session.read_frame()
    from ottla.runtime.buffers import BufferPool, FrameBuffer

    frames = FrameBuffer(BufferPool(), 1 << 20)
    frames.limit(16 * 1024, per_read=16 * 1024)
    held = 0
    for _ in range(10):
        target = frames.target()
        assert len(target) <= 16 * 1024
        frames.end += len(target)
        held = len(frames.own) if frames.own is not None else held
        frames.settle()
        assert held <= 16 * 1024
        break


def test_cve_2022_34917_only_api_versions_and_sasl_before_authentication(broker: Broker) -> None:
    from ottla.protocol.generated.api_versions_request import ApiVersionsRequest

    with login(broker) as session:
        assert session.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0
        with pytest.raises(Closed):
            session.ask(MetadataRequest(None), 9)
    for request, version in ((MetadataRequest(None), 9), (CreateTopicsRequest([], 100), 5)):
        with login(broker) as session, pytest.raises(Closed):
            session.ask(request, version)
    with login(broker) as session:
        assert session.handshake("PLAIN").error_code == 0
        with pytest.raises(Closed):
            session.ask(MetadataRequest(None), 9)


def test_cve_2018_1288_hand_made_replica_fetch(broker: Broker) -> None:
    with login(broker).plain("bob", PASSWORD) as session:
        topics = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])]
        old = FetchRequest(replica_id=1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
        assert [p.error_code for t in session.ask(old, 12).responses for p in t.partitions] == [29]
        with Session(broker.node.ports["PLAINTEXT"]) as admin:
            topic_id = admin.ask(MetadataRequest(None), 12).topics[0].topic_id
        by_id = [FetchTopic("", topic_id, [FetchPartition(0, partition_max_bytes=1 << 20)])]
        new = FetchRequest(
            replica_state=ReplicaState(1, 1), max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=by_id
        )
        assert [p.error_code for t in session.ask(new, 15).responses for p in t.partitions] == [29]


def test_cve_2017_12610_authorization_id(broker: Broker) -> None:
    """Nobody becomes somebody else by asking for it."""
    words = "Client requested an authorization id that is different from username"
    with login(broker) as session:
        session.handshake("PLAIN")
        response = session.authenticate(f"admin\0alice\0{PASSWORD}".encode())
        assert response.error_code == SASL_AUTHENTICATION_FAILED
        assert words in response.error_message
    with login(broker) as session:
        session.handshake("SCRAM-SHA-256")
        response = session.authenticate(b"n,a=admin,n=alice,r=abcdefgh")
        assert response.error_code == SASL_AUTHENTICATION_FAILED
        assert words in response.error_message


def test_cve_2024_56128_scram_final_nonce() -> None:
    """The final message must carry the whole nonce of this exchange, whatever its proof."""
    credential = new_credential("SCRAM-SHA-256", "secret", b"s" * 16)
    for wrong in ("client-noncX" + "server", "client-nonce", "client-nonce" + "servex", ""):
        server = ScramServer("SCRAM-SHA-256", lambda name, _: ScramUser(credential, name), lambda: "server")
        client = ScramClient("SCRAM-SHA-256", "u", "secret", "client-nonce")
        challenge = server.evaluate(client.first())
        final = client.respond(challenge)
        assert final is not None
        with pytest.raises(SaslFailure):
            server.evaluate(final.replace(b"client-nonceserver", wrong.encode()))
        assert not server.complete
    server = ScramServer("SCRAM-SHA-256", lambda name, _: ScramUser(credential, name), lambda: "server")
    client = ScramClient("SCRAM-SHA-256", "u", "secret", "client-nonce")
    final = client.respond(server.evaluate(client.first()))
    assert client.respond(server.evaluate(final or b"")) is None
    assert server.complete
    assert server.name == "u"


def test_cve_2021_38153_constant_time_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are compared by hmac.compare_digest and never by `==`; an unknown name is compared too."""
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest
    monkeypatch.setattr(plain.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    server = plain.PlainServer({"u": b"right"})
    for name in ("u", "unknown"):
        with pytest.raises(SaslFailure):
            server.evaluate(f"\0{name}\0wrong".encode())
    assert len(compared) == 2
    for module in (plain, scram):
        source = inspect.getsource(module)
        assert "compare_digest" in source
        assert "password ==" not in source
        assert "stored_key ==" not in source


def test_cve_2018_17196_transactional_produce(broker: Broker) -> None:
    """WRITE on the topic alone does not let a transactional batch through, with or without its id."""
    with Session(broker.node.ports["PLAINTEXT"]) as admin:
        acl = AclCreation(2, "t", 3, "User:bob", "*", 4, 3)
        assert admin.ask(CreateAclsRequest([acl]), 2).results[0].error_code == 0
    records = [SimpleRecord(1_700_000_000_000, None, b"v")]
    batch = bytes(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    with login(broker).plain("bob", PASSWORD) as session:
        for transactional_id in (None, "not-his"):
            data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]
            response = session.ask(ProduceRequest(transactional_id, -1, 1000, data), 9)
            assert response.responses[0].partition_responses[0].error_code == 53
        plain_batch = [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(build_batch(records)))])]
        assert (
            session.ask(ProduceRequest(None, -1, 1000, plain_batch), 9).responses[0].partition_responses[0].error_code
            == 0
        )


def test_cve_2023_25194_no_code_from_jaas_configuration(broker: Broker) -> None:
    for module in (
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "os.system",
        "ottla.security.plain",
    ):
        with pytest.raises(JaasError, match="is not supported; login modules are"):
            parse_jaas(f'{module} required user.provider.url="ldap://evil";')
    with Session(broker.node.ports["PLAINTEXT"]) as admin:
        name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        value = 'com.sun.security.auth.module.JndiLoginModule required x="y";'
        resource = AlterConfigsResource(4, "1", [AlterableConfig(name, 0, value)])
        admin.ask(IncrementalAlterConfigsRequest([resource]), 1)
    with login(broker).plain("bob", PASSWORD) as session:
        assert session.ask(MetadataRequest([]), 9) is not None
    with Session(broker.node.ports["PLAINTEXT"]) as admin:
        resource = AlterConfigsResource(4, "1", [AlterableConfig(name, 1, None)])
        admin.ask(IncrementalAlterConfigsRequest([resource]), 1)


@pytest.mark.parametrize("cve", ["2025_27818", "2025_27819"])
def test_cve_2025_27818_27819_no_login_module_and_no_callback_class(cve: str) -> None:
    text = (
        "com.sun.security.auth.module.LdapLoginModule"
        if cve == "2025_27818"
        else "com.sun.security.auth.module.JndiLoginModule"
    )
    config = _sasl_config({"listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{text} required a=b;"})
    with pytest.raises(StartupError, match="is not supported; login modules are"):
        _security_of(config)
    from ottla.env.config.problems import ConfigError

    with pytest.raises(ConfigError):
        _sasl_config({"sasl.server.callback.handler.class": "evil.Handler"})


def _sasl_config(more: dict[str, str]) -> Any:
    return load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(PLAIN_MODULE, user_a="b"),
            **more,
        }
    )


def _security_of(config: Any) -> Any:
    from ottla.metadata.image import MetadataImage
    from ottla.server.security import NodeSecurity

    node = Node(config)
    return NodeSecurity(config, node._clock, node._random, MetadataImage)


def test_cve_2025_27817_no_url_outside_the_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a file nor an address is opened that the operator has not allowed, by whatever spelling."""
    monkeypatch.setattr(jwks, "_get", lambda *_: pytest.fail("an address was opened"))
    allowed = ["https://idp.example/keys"]
    for url in (
        "https://idp.example/keys/../admin",
        "https://idp.example.evil/keys",
        "https://idp.example/keys?x",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "gopher://idp.example/keys",
        "HTTPS://idp.example/keys",
        "",
    ):
        with pytest.raises(JwksError):
            check_allowed(url, allowed)
    check_allowed(allowed[0], allowed)
    secret = tmp_path / "secret"
    secret.write_text("{}")
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": jaas(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{secret}",
    }
    with pytest.raises(StartupError, match=r"allowed\.urls"):
        _security_of(_sasl_config(properties))


def test_cve_2025_27817_redirects_are_not_followed() -> None:
    """An allowed address cannot send us elsewhere."""
    import http.server
    import threading

    class Redirect(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd" if self.path == "/a" else "http://127.0.0.1:1/x")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Redirect) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for path in ("/a", "/b"):
            keys = jwks.UrlKeys(f"http://127.0.0.1:{server.server_port}{path}")
            with pytest.raises(JwksError):
                keys.refresh()
            assert keys.current() is None
        server.shutdown()


def test_cve_2024_31141_config_providers_read_no_files(tmp_path: Path) -> None:
    """`${file:...}` and its kin are texts wherever a client can set a value: variables are filled in only when the
    operator's file is read, and only by Kafka's own providers."""
    secret = tmp_path / "secret.properties"
    secret.write_text("password=from-the-file\n")
    config = _sasl_config({"ssl.keystore.password": f"${{file:{secret}:password}}", "broker.rack": "${env:HOME}"})
    assert config.ssl_keystore_password == f"${{file:{secret}:password}}"
    assert config.broker_rack == "${env:HOME}"
    from ottla.env.config.problems import ConfigError

    with pytest.raises(ConfigError):
        _sasl_config({"config.providers": "file", "config.providers.file.class": "x.FileConfigProvider"})


# Beside the list


def token(broker: Broker, **claims: Any) -> str:
    key = jwk.RSAKey.import_key(json.loads(broker.private_key.read_text()))  # type: ignore[attr-defined]
    facts = {"iss": "us", "aud": "kafka", "sub": "tokenuser", "exp": int(time.time()) + 60, **claims}
    return jwt.encode({"alg": "RS256", "kid": "k1"}, {k: v for k, v in facts.items() if v is not None}, key)


def bearer(broker: Broker, text: str) -> Any:
    with login(broker) as session:
        session.handshake("OAUTHBEARER")
        response = session.authenticate(b"n,,\x01auth=Bearer " + text.encode() + b"\x01\x01")
        if response.error_code == 0 and bytes(response.auth_bytes):
            assert json.loads(bytes(response.auth_bytes))["status"] == "invalid_token"
            return session.authenticate(b"\x01")
        return response


def test_oauthbearer_takes_good_tokens_only(broker: Broker) -> None:
    good = bearer(broker, token(broker))
    assert good.error_code == 0
    assert 0 < good.session_lifetime_ms <= 2500
    now = int(time.time())
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode() + "." + token(broker).split(".")[1] + "."
    other = jwt.encode(
        {"alg": "RS256", "kid": "k1"}, {"iss": "us", "sub": "x", "exp": now + 60}, jwk.RSAKey.generate_key(2048)
    )
    shared = jwt.encode(
        {"alg": "HS256"}, {"iss": "us", "aud": "kafka", "sub": "x", "exp": now + 60}, jwk.OctKey.import_key("k" * 32)
    )
    for bad in (
        token(broker, exp=now - 60), token(broker, exp=None), token(broker, nbf=now + 600), token(broker, iss="them"),
        token(broker, aud="other"), token(broker, sub=None), none, other, shared, "a.b.c", token(broker)[:-4] + "AAAA",
    ):  # fmt: skip
        refused = bearer(broker, bad)
        assert refused.error_code == SASL_AUTHENTICATION_FAILED, bad
        assert bad not in (refused.error_message or "")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the gate's clock on, which stands still otherwise: sessions end when the test says so, not the machine."""
    now = [1e6]

    def pass_by(ms: float) -> None:
        now[0] += ms

    monkeypatch.setattr(SaslGate, "_now", lambda _self, _connection: now[0])
    return pass_by


def test_a_session_ends_unless_the_client_logs_in_again(broker: Broker, later: Callable[[float], None]) -> None:
    with login(broker) as session:
        response = session.scram("SCRAM-SHA-256", "alice", PASSWORD)
        assert response.session_lifetime_ms == 2500
        later(1200)
        assert session.scram("SCRAM-SHA-256", "alice", PASSWORD).session_lifetime_ms == 2500
        later(2500)  # past the first end, at the very end of the second
        assert session.ask(MetadataRequest([]), 9) is not None
        later(1)
        with pytest.raises(Closed):
            session.ask(MetadataRequest([]), 9)


def test_another_principal_or_mechanism_cannot_take_over_a_session(
    broker: Broker, later: Callable[[float], None]
) -> None:
    with login(broker).plain("alice", PASSWORD) as session:
        later(1050)
        session.handshake("PLAIN")
        response = session.authenticate(f"\0bob\0{PASSWORD}".encode())
        assert response.error_code == SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in response.error_message
    with login(broker).plain("alice", PASSWORD) as session:
        later(1050)
        session.handshake("SCRAM-SHA-256")
        assert session.authenticate(b"n,,n=alice,r=abc").error_code == SASL_AUTHENTICATION_FAILED


def test_a_refusal_is_delayed_and_the_socket_closed(broker: Broker) -> None:
    with login(broker) as session:
        session.handshake("PLAIN")
        started = time.monotonic()
        assert session.authenticate(b"\0alice\0no").error_code == SASL_AUTHENTICATION_FAILED
        assert time.monotonic() - started >= 0.015
        with pytest.raises(Closed):
            session.read_frame()


def test_old_clients_send_bare_tokens(broker: Broker) -> None:
    """After SaslHandshake v0 (librdkafka before 1.0): the tokens without a request around them."""
    message = f"\0alice\0{PASSWORD}".encode()
    with login(broker) as session:
        assert session.handshake("PLAIN", version=0).error_code == 0
        session.socket.sendall(struct.pack(">i", len(message)) + message)
        assert session.read_frame() == b""
        assert session.ask(MetadataRequest([]), 9) is not None


def test_sasl_on_a_plain_listener_is_an_illegal_state(broker: Broker) -> None:
    with Session(broker.node.ports["PLAINTEXT"]) as session:
        assert session.handshake("PLAIN").error_code == 34
        assert session.authenticate(b"x").error_code == 34


def test_scram_module_needs_no_jaas_entry() -> None:
    assert parse_jaas(f'{SCRAM_MODULE} required username="a" password="b\\"c";').options["password"] == 'b"c'
