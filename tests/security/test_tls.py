"""TLS listeners: principals of certificates, mapping rules, PKCS12, reloading, versions, and what may not stand there."""

from __future__ import annotations

import re
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from ottla.env.config.load import load
from ottla.protocol.api import encode_request
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.security.principals import PrincipalRuleError, distinguished_name, principal_mapper
from ottla.security.tls import TlsError, openssl_cipher, server_context
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.security.secured import Certificates
from tests.security.session import Closed, Session

PASSWORD = "store-p4ss"


def properties(**more: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        **more,
    }


def pem(certificates: Certificates, name: str = "server") -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue(name)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority_file),
    }


def client(certificates: Certificates, name: str | None = None, common_name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.authority_file))
    if name is not None:
        context.load_cert_chain(str(certificates.issue(name, common_name)))
    return context


def test_a_certificate_is_a_principal_by_the_rules(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = properties(
        **pem(certificates),
        **{
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/L,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:boss",
        },
    )
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 10_000, True)
    with Broker(properties=settings) as broker:
        port = broker.node.ports["SSL"]
        with Session(port, context=client(certificates, "c1", "BOSS")) as session:
            assert session.ask(request, 5).topics[0].error_code == 0
        with Session(port, context=client(certificates, "c2", "WORKER")) as session:
            assert session.ask(request, 5).topics[0].error_code == 29
        with (
            pytest.raises((ssl.SSLError, ConnectionError, Exception)),
            Session(port, context=client(certificates)) as session,
        ):
            session.ask(MetadataRequest([]), 9)


@pytest.mark.timeout(180)
def test_records_of_any_size_carry_requests_and_a_slow_reader_gets_all(tmp_path: Path) -> None:
    """A byte a record, many requests in one record, requests larger than a read, answers larger than the socket takes."""
    certificates = Certificates(tmp_path)
    names = [f"a-topic-with-a-rather-long-name-{number:06}" for number in range(6000)]
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
    version = 9
    with Broker(properties=properties(**pem(certificates))) as broker:
        with Session(broker.node.ports["SSL"], context=client(certificates)) as session:
            one = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "c"))
            for byte in one:
                session.socket.sendall(bytes([byte]))
            assert session.read_frame()[:4] == b"\0\0\0\1"
            frames = [b"".join(encode_request(ApiVersionsRequest(), 0, 100 + n, "c")) for n in range(300)]
            session.socket.sendall(b"".join(frames))
            assert [int.from_bytes(session.read_frame()[:4], "big") for _ in frames] == list(range(100, 400))
        with Session(broker.node.ports["SSL"], context=client(certificates)) as session:
            session.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            large = b"".join(encode_request(request, version, 7, "c"))
            assert len(large) > 200_000
            for _ in range(4):
                session.socket.sendall(large)
            for _ in range(4):
                frame = session.read_frame()
                assert frame[:4] == b"\0\0\0\7"
                assert all(name.encode() in frame for name in (names[0], names[-1]))


@pytest.mark.timeout(180)
def test_each_listener_has_its_own_settings(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    inner = str(certificates.issue("inner", "inner"))
    settings = {
        **properties(**pem(certificates)),
        "listeners": "SSL://127.0.0.1:0,INNER://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,INNER:SSL,CONTROLLER:PLAINTEXT",
        "listener.name.inner.ssl.keystore.type": "PEM",
        "listener.name.inner.ssl.keystore.location": inner,
        "listener.name.inner.ssl.client.auth": "required",
        "listener.name.inner.ssl.enabled.protocols": "TLSv1.3",
    }
    with Broker(properties=settings) as broker:
        outer_port, inner_port = broker.node.ports["SSL"], broker.node.ports["INNER"]
        mine = client(certificates, "me", "me")
        for port, common_name in ((outer_port, "server"), (inner_port, "inner")):
            with Session(port, context=mine) as session:
                assert isinstance(session.socket, ssl.SSLSocket)
                shown = x509.load_der_x509_certificate(session.socket.getpeercert(binary_form=True) or b"")
                assert f"CN={common_name}" in shown.subject.rfc4514_string()
                session.ask(MetadataRequest([]), 9)
        with Session(outer_port, context=client(certificates)) as session:
            session.ask(MetadataRequest([]), 9)
        old = client(certificates, "old")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        Session(outer_port, context=old).close()
        for refused in (old, client(certificates)):
            with (
                pytest.raises((ssl.SSLError, ConnectionError, Closed)),
                Session(inner_port, context=refused) as session,
            ):
                session.ask(MetadataRequest([]), 9)


def served(port: int, certificates: Certificates) -> bytes:
    with Session(port, context=client(certificates)) as session:
        assert isinstance(session.socket, ssl.SSLSocket)
        return session.socket.getpeercert(binary_form=True) or b""


@pytest.mark.timeout(180)
def test_new_files_are_taken_up_without_a_restart(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = properties(**pem(certificates), **{"ssl.allow.dn.changes": "true"})
    with Broker(properties=settings) as broker:
        port = broker.node.ports["SSL"]
        first = served(port, certificates)
        (tmp_path / "server.pem").write_text("broken")
        time.sleep(1.2)
        assert served(port, certificates) == first
        certificates.issue("server", None, "elsewhere.example")
        time.sleep(1.2)
        assert served(port, certificates) == first
        certificates.issue("server")
        deadline = time.monotonic() + 20
        while served(port, certificates) == first:
            assert time.monotonic() < deadline
            time.sleep(0.3)


def test_pkcs12_and_encrypted_keys_and_texts(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    text = certificates.issue("server").read_bytes()
    key = load_pem_private_key(text, None)
    chain = x509.load_pem_x509_certificates(text)
    store = pkcs12.serialize_key_and_certificates(
        b"s",
        key,
        chain[0],
        chain[1:],
        BestAvailableEncryption(PASSWORD.encode()),  # type: ignore[arg-type]
    )
    (tmp_path / "server.p12").write_bytes(store)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem_chain = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)
    good: list[dict[str, str]] = [
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(tmp_path / "server.p12"), "ssl.keystore.password": PASSWORD},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": encrypted.decode(), "ssl.keystore.certificate.chain": pem_chain.decode(), "ssl.key.password": PASSWORD},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": plain.decode(), "ssl.keystore.certificate.chain": pem_chain.decode()},
    ]  # fmt: skip
    for settings in good:
        assert server_context(config(settings), client_auth=False)
    bad: list[dict[str, str]] = [
        {**good[0], "ssl.keystore.password": "wrong"},
        {**good[1], "ssl.key.password": "wrong"},
        {**good[0], "ssl.keystore.type": "BCFKS"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "nowhere")},
        {},
        {**good[2], "ssl.enabled.protocols": "TLSv1.1"},
    ]
    for settings in bad:
        with pytest.raises(TlsError) as refused:
            server_context(config(settings), client_auth=False)
        assert PASSWORD not in str(refused.value)
        assert "wrong" not in re.sub("wrong password|password is wrong", "", str(refused.value))
    with pytest.raises(StartupError, match="no key"), Broker(properties=properties()):
        pass


def config(settings: dict[str, str]) -> Any:
    return load(
        {
            "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093", **properties(**settings),
        }
    )  # fmt: skip


def test_old_versions_are_refused(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with Broker(properties=properties(**pem(certificates), **{"ssl.enabled.protocols": "TLSv1.3"})) as broker:
        context = client(certificates)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            Session(broker.node.ports["SSL"], context=context)
        assert served(broker.node.ports["SSL"], certificates)


def test_mapping_rules() -> None:
    name = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
    assert principal_mapper("DEFAULT")(name) == name
    assert principal_mapper("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/")(name) == "Duke"
    assert principal_mapper("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT")(name) == "duke@serviceusers"
    assert principal_mapper("RULE:^nobody$/x/,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT")(name) == "DUKE"
    with pytest.raises(PrincipalRuleError):
        principal_mapper("RULE:^nobody$/x/")(name)
    for bad in ("RULE:", "RULE:^(x/$1/", "SOMETHING"):
        with pytest.raises(PrincipalRuleError):
            principal_mapper(bad)
    assert openssl_cipher("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") == "ECDHE-RSA-AES128-GCM-SHA256"


def test_distinguished_names_as_java_writes_them() -> None:
    oid = x509.NameOID
    subject = x509.Name(
        [
            x509.NameAttribute(oid.COUNTRY_NAME, "US"),
            x509.NameAttribute(oid.ORGANIZATION_NAME, "Acme, Inc."),
            x509.NameAttribute(oid.COMMON_NAME, "a+b"),
        ]
    )
    assert distinguished_name(subject) == "CN=a\\+b,O=Acme\\, Inc.,C=US"
    for length, written in ((127, "7f"), (128, "8180"), (300, "82012c")):  # DER: a longer value has a longer length
        title = x509.Name([x509.NameAttribute(oid.TITLE, "t" * length)])
        assert distinguished_name(title) == f"2.5.4.12=#0c{written}{'74' * length}"
