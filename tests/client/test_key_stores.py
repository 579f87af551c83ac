"""Java's stores as keytool makes them: JKS and PKCS12, trust and key, for the wire client and for librdkafka's settings."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import BadSettings
from ottla.client.librdkafka import security_settings
from ottla.client.settings import client_settings
from ottla.client.tls import tls_context
from ottla.security.java_keystores import load_key_store
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.cli.tools import ours, ours_apart
from tests.security.secured import Certificates, address, four_listeners

STORE_PASSWORD = "store-secret"
KEY_PASSWORD = "key-secret"
KINDS = ("JKS", "PKCS12")


def keytool(*words: str) -> None:
    program = shutil.which("keytool")
    if program is None:
        pytest.skip("keytool is not installed")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stores(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trust.jks, trust.p12, key.jks and key.p12."""
    folder = tmp_path_factory.mktemp("stores")
    for kind in KINDS:
        suffix = {"JKS": "jks", "PKCS12": "p12"}[kind]
        common = ("-storetype", kind, "-storepass", STORE_PASSWORD)
        trust, key = str(folder / f"trust.{suffix}"), str(folder / f"key.{suffix}")
        file = str(certificates.authority_file)
        keytool("-importcert", "-noprompt", "-alias", "ca", "-file", file, "-keystore", trust, *common)
        own = KEY_PASSWORD if kind == "JKS" else STORE_PASSWORD  # PKCS12 has one password for all
        name = ("-dname", "CN=client", "-keyalg", "RSA", "-keysize", "2048", "-validity", "10")
        keytool("-genkeypair", "-alias", "client", *name, "-keypass", own, "-keystore", key, *common)
    return folder


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[Broker]:
    with Broker(properties=four_listeners(certificates)) as running:
        yield running


def trusting(stores: Path, suffix: str, password: str = STORE_PASSWORD) -> dict[str, str]:
    kind = {"jks": "JKS", "p12": "PKCS12"}[suffix]
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(stores / f"trust.{suffix}"),
        "ssl.truststore.password": password,
    }


@pytest.mark.parametrize("suffix", ["jks", "p12"])
def test_the_tools_trust_what_the_store_trusts(broker: Broker, stores: Path, suffix: str, tmp_path: Path) -> None:
    server = address(broker, "SSL")
    with Cluster(client_settings(server, trusting(stores, suffix))) as cluster:
        assert cluster.describe("describeCluster").cluster_id
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in trusting(stores, suffix).items()))
    assert ours("topics", ["--bootstrap-server", server, "--list", "--command-config", str(file)]).code == 0
    produced = ours_apart(
        "console-producer",
        ["--bootstrap-server", server, "--topic", f"t-{suffix}", "--command-config", str(file)],
        "hello\n",
    )
    assert (produced.code, produced.err) == (0, "")
    read = ours_apart(
        "console-consumer",
        ["--bootstrap-server", server, "--topic", f"t-{suffix}", "--from-beginning", "--max-messages", "1",
         "--timeout-ms", "20000", "--command-config", str(file)],
    )  # fmt: skip
    assert read.out == "hello\n"


@pytest.mark.parametrize("suffix", ["jks", "p12"])
def test_a_key_with_its_certificate(stores: Path, suffix: str) -> None:
    store = load_key_store(str(stores / f"key.{suffix}"), STORE_PASSWORD, KEY_PASSWORD if suffix == "jks" else None)
    key, chain = store.identity_pem()
    assert key.startswith("-----BEGIN PRIVATE KEY-----")
    assert chain.count("BEGIN CERTIFICATE") == 1
    given = {
        "keystore.location": str(stores / f"key.{suffix}"),
        "keystore.password": STORE_PASSWORD,
        **({"key.password": KEY_PASSWORD} if suffix == "jks" else {}),
    }
    assert isinstance(tls_context(given), ssl.SSLContext)  # OpenSSL holds key against certificate
    made = security_settings({f"ssl.{name}": value for name, value in given.items()})
    assert made == {"ssl.key.pem": key, "ssl.certificate.pem": chain}


@pytest.mark.parametrize("suffix", ["jks", "p12"])
def test_what_is_wrong_is_said_in_one_line(stores: Path, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="password"):
        security_settings(trusting(stores, suffix, "wrong"))
    with pytest.raises(ValueError, match="no private key"):
        load_key_store(str(stores / f"trust.{suffix}"), STORE_PASSWORD).identity_pem()
    whole = (stores / f"trust.{suffix}").read_bytes()
    damaged = tmp_path / f"damaged.{suffix}"
    for data in (whole[: len(whole) // 2], whole[:-1] + b"\0", os.urandom(500), b""):
        damaged.write_bytes(data)
        with pytest.raises(ValueError, match="damaged"):
            load_key_store(str(damaged), STORE_PASSWORD)
    if suffix == "jks":
        with pytest.raises(ValueError, match="password of the key"):
            load_key_store(str(stores / "key.jks"), STORE_PASSWORD)


def test_a_jks_without_its_password_is_read_but_never_beyond_its_end(stores: Path, tmp_path: Path) -> None:
    """Java allows no password for a trust store: no integrity check then. Every cut must still be an error."""
    whole = (stores / "trust.jks").read_bytes()
    assert len(load_key_store(str(stores / "trust.jks"), None).certificates) == 1
    cut = tmp_path / "cut.jks"
    for length in range(0, len(whole) - 21, 7):
        cut.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cut"):
            load_key_store(str(cut), None)


@pytest.mark.timeout(180)
def test_a_listener_takes_what_keytool_made(stores: Path) -> None:
    """JKS is Kafka's type when nothing is said: its server.properties work as they are. A client shows a store too."""
    settings = {
        "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.location": str(stores / "key.jks"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": KEY_PASSWORD,
        "ssl.truststore.location": str(stores / "key.p12"),  # trusts the certificate in it
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.client.auth": "required",
        "ssl.endpoint.identification.algorithm": "",
    }
    trusts = {
        "ssl.truststore.certificates": load_key_store(
            str(stores / "key.jks"), STORE_PASSWORD, KEY_PASSWORD
        ).trusted_pem()
    }
    shows = {"ssl.keystore.location": str(stores / "key.p12"), "ssl.keystore.password": STORE_PASSWORD}
    common = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    with Broker(properties=settings) as running:
        server = address(running, "SSL")
        with Cluster(client_settings(server, {**common, **trusts, **shows})) as cluster:
            assert cluster.describe("describeCluster").cluster_id
    for wrong, words in (("ssl.key.password", "password"), ("ssl.keystore.password", "password")):
        with pytest.raises(StartupError, match=words), Broker(properties={**settings, wrong: "other"}):
            pass
