"""A secured node inside a test: certificates by trustme, one listener for each protocol, users for each mechanism."""

from __future__ import annotations

from pathlib import Path

import trustme

from ottla.testing import Broker

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "correct-horse-battery"  # also what the test of leaks looks for
ADMIN_PASSWORD = "admin-Zx81-secret"
USERS = {"admin": ADMIN_PASSWORD, "alice": PASSWORD, "bob": PASSWORD}


def jaas(module: str, **options: str) -> str:
    return f"{module} required " + " ".join(f'{name}="{value}"' for name, value in options.items()) + ";"


def plain_users(users: dict[str, str]) -> str:
    admin = {"username": "admin", "password": users["admin"]}
    return jaas(PLAIN_MODULE, **admin, **{f"user_{name}": password for name, password in users.items()})


class Certificates:
    """A certificate authority of this test alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = trustme.CA()
        self.authority_file = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.authority_file))

    def issue(self, name: str, common_name: str | None = None, *hosts: str) -> Path:
        """A file with key and chain for `name`."""
        cert = self.authority.issue_cert(*(hosts or ("127.0.0.1", "localhost")), common_name=common_name or name)
        path = self.directory / f"{name}.pem"
        cert.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path


def tls_properties(certificates: Certificates, name: str = "server") -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue(name)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority_file),
    }


def four_listeners(certificates: Certificates) -> dict[str, str]:
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in (*names, "CONTROLLER")),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in names) + ",CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        **{
            f"listener.name.{name}.plain.sasl.jaas.config": plain_users(USERS)
            for name in ("sasl_plaintext", "sasl_ssl")
        },
        **tls_properties(certificates),
        "ssl.client.auth": "requested",
    }


def address(broker: Broker, listener: str) -> str:
    return f"127.0.0.1:{broker.node.ports[listener]}"
