"""A certificate chain that is signed with SHA-1: refused with the reason and the setting, taken where the setting allows it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.client.cluster import Cluster
from ottla.client.errors import AuthenticationFailed
from ottla.client.librdkafka import security_settings
from ottla.client.settings import client_settings
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.security.tls_level import set_security_level
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.security.secured import Certificates
from tests.security.session import Closed, Session

PASSWORD = "store-p4ss"
LEVEL = "ottla.ssl.security.level"


def _run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, timeout=60, capture_output=True)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with root.pem, and for `server` and `client` NAME.pem, NAME.p12 and NAME.jks: a chain of root, an
    authority and a certificate, each signed with SHA-1."""
    if shutil.which("openssl") is None or shutil.which("keytool") is None:
        pytest.skip("openssl or keytool is not installed")
    folder = tmp_path_factory.mktemp("sha1")
    authority = "basicConstraints=critical,CA:TRUE"
    _run("openssl", "req", "-x509", "-sha1", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=root", "-days", "30",
         "-addext", authority, "-keyout", folder / "root.key", "-out", folder / "root.pem")  # fmt: skip
    _issue(folder, "authority", "root", authority)
    for name in ("server", "client"):
        _issue(folder, name, "authority", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        parts = [folder / f"{name}.key", folder / f"{name}.crt", folder / "authority.crt"]
        (folder / f"{name}.pem").write_text("".join(part.read_text() for part in parts))
        _run("openssl", "pkcs12", "-export", "-inkey", parts[0], "-in", parts[1], "-certfile", parts[2], "-name", name,
             "-passout", f"pass:{PASSWORD}", "-out", folder / f"{name}.p12")  # fmt: skip
        _run("keytool", "-importkeystore", "-noprompt", "-srckeystore", folder / f"{name}.p12", "-srcstoretype", "PKCS12",
             "-srcstorepass", PASSWORD, "-destkeystore", folder / f"{name}.jks", "-deststoretype", "JKS",
             "-deststorepass", PASSWORD)  # fmt: skip
    return folder


def _issue(folder: Path, name: str, issuer: str, extension: str) -> None:
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(extension + "\n")
    _run("openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout",
         folder / f"{name}.key", "-out", request)  # fmt: skip
    signer = folder / ("root.pem" if issuer == "root" else f"{issuer}.crt")
    _run("openssl", "x509", "-req", "-sha1", "-in", request, "-CA", signer, "-CAkey", folder / f"{issuer}.key",
         "-CAcreateserial", "-days", "30", "-extfile", extensions, "-out", folder / f"{name}.crt")  # fmt: skip


def _properties(chain: Path, kind: str, **more: str) -> dict[str, str]:
    suffix = {"PEM": "pem", "PKCS12": "p12", "JKS": "jks"}[kind]
    passwords = {} if kind == "PEM" else {"ssl.keystore.password": PASSWORD, "ssl.key.password": PASSWORD}
    return {
        "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(chain / f"server.{suffix}"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(chain / "root.pem"),
        **passwords,
        **more,
    }


def _client_properties(chain: Path, kind: str = "PKCS12", **more: str) -> dict[str, str]:
    suffix = {"PKCS12": "p12", "JKS": "jks"}[kind]
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(chain / "root.pem"),
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(chain / f"client.{suffix}"),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        **more,
    }


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_a_weak_chain_is_refused_with_the_setting_that_allows_it(chain: Path, kind: str) -> None:
    with pytest.raises(StartupError) as refused, Broker(properties=_properties(chain, kind)):
        pass
    words = str(refused.value)
    assert words.startswith("listener SSL: ")
    assert "signed with SHA-1" in words
    assert "CA_MD_TOO_WEAK" in words
    assert f"{LEVEL}=0" in words


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
@pytest.mark.parametrize("name", [LEVEL, f"listener.name.ssl.{LEVEL}"])
def test_the_setting_allows_it_on_both_sides(
    chain: Path, kind: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = _properties(chain, kind, **{name: "0", "ssl.client.auth": "required"})
    with Broker(properties=settings) as broker:
        assert "tls.security_level_lowered" in capfd.readouterr().err
        properties = _client_properties(chain, **{LEVEL: "0"})
        with Cluster(client_settings(broker.bootstrap_servers, properties)) as cluster:
            assert cluster.describe("describeCluster").brokers
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **security_settings(properties)})
        assert admin.list_topics(timeout=30).brokers


def test_a_client_that_does_not_allow_it_names_the_reason(chain: Path) -> None:
    """The client's own store is strong or absent: the server's chain is what it refuses."""
    settings = _properties(chain, "PKCS12", **{LEVEL: "0"})
    with Broker(properties=settings) as broker:
        own = {name: text for name, text in _client_properties(chain).items() if "keystore" not in name}
        with (
            pytest.raises(AuthenticationFailed, match=r"signed with SHA-1.*ottla\.ssl\.security\.level=0"),
            Cluster(client_settings(broker.bootstrap_servers, own)) as cluster,
        ):
            cluster.describe("describeCluster")


def test_a_weak_client_certificate_is_refused_by_default(
    chain: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A listener with a strong chain of its own; the log has the reason and the setting."""
    certificates = Certificates(tmp_path)
    trusted = tmp_path / "both.pem"
    trusted.write_text(certificates.authority_file.read_text() + (chain / "root.pem").read_text())
    strong = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("strong")),
        "ssl.truststore.location": str(trusted),
        "ssl.client.auth": "required",
    }
    context = ssl.create_default_context(cafile=str(certificates.authority_file))
    set_security_level(context, 0)
    context.load_cert_chain(str(chain / "client.pem"))
    settings = {**_properties(chain, "PEM"), **strong}
    with Broker(properties=settings) as broker:
        with pytest.raises((OSError, Closed)), _session(broker, context) as session:
            session.ask(MetadataRequest([]), 9)
        logged, deadline = "", time.monotonic() + 30
        while f"{LEVEL}=0" not in logged:
            assert time.monotonic() < deadline, logged
            logged += capfd.readouterr().err
            time.sleep(0.01)
    with (
        Broker(properties={**settings, f"listener.name.ssl.{LEVEL}": "0"}) as broker,
        _session(broker, context) as session,
    ):
        assert session.ask(MetadataRequest([]), 9).brokers


def _session(broker: Broker, context: ssl.SSLContext) -> Session:
    return Session(broker.node.ports["SSL"], context=context)


def test_the_level_changes_nothing_else() -> None:
    usual, lowered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    set_security_level(lowered, 0)
    assert lowered.security_level == 0
    assert [cipher["name"] for cipher in lowered.get_ciphers()] == [cipher["name"] for cipher in usual.get_ciphers()]
    assert lowered.minimum_version == usual.minimum_version
