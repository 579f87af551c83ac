"""The wire client through TLS and SASL, against a real node; wrong security has one clear error, in the shims too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import AuthenticationFailed
from ottla.client.settings import client_settings, jaas_options, load_properties
from ottla.testing import Broker
from tests.cli.tools import ours
from tests.security.secured import (
    PASSWORD,
    PLAIN_MODULE,
    SCRAM_MODULE,
    Certificates,
    address,
    four_listeners,
    jaas,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[Broker]:
    with Broker(properties=four_listeners(certificates)) as running:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            words = ["--user", "alice", "--alter", "--add-config", f"{mechanism}=[iterations=8192,password={PASSWORD}]"]
            done = ours("configs", ["--bootstrap-server", address(running, "PLAINTEXT"), *words])
            assert done.code == 0, done
        yield running


def properties(
    certificates: Certificates, listener: str, mechanism: str = "PLAIN", password: str = PASSWORD
) -> dict[str, str]:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    return {
        "security.protocol": listener,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority_file),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(module, username="alice", password=password),
    }


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SSL", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256"), ("SASL_SSL", "SCRAM-SHA-512")],
)
def test_the_ways_in(broker: Broker, certificates: Certificates, listener: str, mechanism: str) -> None:
    settings = client_settings(address(broker, listener), properties(certificates, listener, mechanism))
    with Cluster(settings) as cluster:
        assert cluster.describe("describeCluster").cluster_id


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_not_tried_again(broker: Broker, certificates: Certificates, mechanism: str) -> None:
    given = properties(certificates, "SASL_SSL", mechanism, "wrong")
    with Cluster(client_settings(address(broker, "SASL_SSL"), given)) as cluster, pytest.raises(AuthenticationFailed):
        cluster.describe("describeCluster")


def test_a_tool_with_a_properties_file(broker: Broker, certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = [f"{name}={value}" for name, value in properties(certificates, "SASL_SSL", "SCRAM-SHA-512").items()]
    file.write_text("# a client\n" + "\n".join(lines) + "\n")
    server = address(broker, "SASL_SSL")
    assert ours("topics", ["--bootstrap-server", server, "--list", "--command-config", str(file)]).code == 0
    file.write_text(file.read_text().replace(PASSWORD, "wrong"))
    refused = ours("topics", ["--bootstrap-server", server, "--list", "--command-config", str(file)])
    assert (refused.code, "Traceback" in refused.err) == (1, False)
    assert refused.out.startswith("Error while executing topic command : ")


def test_properties_and_jaas(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("! no\n a = b \nlong=one\\\n  two\ncolon:x\nspace y\nescaped\\=key=tab\\tuni\\u0041\nempty=\n")
    assert load_properties(str(file)) == {
        "a": "b ", "long": "onetwo", "colon": "x", "space": "y", "escaped=key": "tab\tuniA", "empty": "",
    }  # fmt: skip
    escaped = r'M required username="do\"ra" password="p\"a\\s s";'
    assert jaas_options(escaped) == {"username": 'do"ra', "password": 'p"a\\s s'}
    assert jaas_options("M required password='it\\'s';") == {"password": "it's"}
    assert jaas_options('M required username="a b" password="x;y" n=1;') == {
        "username": "a b",
        "password": "x;y",
        "n": "1",
    }
