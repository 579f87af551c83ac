"""A cluster with logins, ACLs and delegation tokens, and a console on it that acts as the person who is logged in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.console.cluster.access import AclRow, create_acl
from ottla.security.web import hash_password
from ottla.testing import Broker
from tests.console.site import PATIENT, ServedConsole
from tests.security.secured import PLAIN_MODULE, jaas
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_ports

CONSOLE_PASSWORD = "console-geheim-7"
PEOPLE = ("alice", "bob", "carol", "eve")
TOPIC, GROUP, CLUSTER, USER = 2, 3, 4, 7
READ, WRITE, CREATE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_TOKENS = 3, 4, 5, 8, 10, 11, 13
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


def secured_properties(port: str = "0", plain: str = "0", controller: str = "0") -> dict[str, str]:
    users = {"username": "admin", "password": "admin-geheim-9", "user_console": CONSOLE_PASSWORD}
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(PLAIN_MODULE, **users),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "delegation.token.secret.key": "of this test alone",
        "connection.failed.authentication.delay.ms": "0",
    }  # fmt: skip


class SecuredCluster:
    def __init__(self, plain: str, sasl: str, *, ottla: bool) -> None:
        self.plain, self.sasl, self.ottla = plain, sasl, ottla
        self._admin = AdminClient({"bootstrap.servers": plain})
        self.console_client = {
            **PATIENT,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas(PLAIN_MODULE, username="console", password=CONSOLE_PASSWORD),
        }

    def allow(self, who: str, resource: int, name: str, *operations: int, pattern: int = LITERAL) -> None:
        with Cluster(client_settings(self.plain, PATIENT)) as cluster:
            for operation in operations:
                create_acl(cluster, AclRow(resource, name, pattern, f"User:{who}", "*", operation, ALLOW))

    def make(self, *topics: str) -> None:
        for future in self._admin.create_topics([NewTopic(name, 2, 1) for name in topics]).values():
            future.result(60)

    def write(self, topic: str, *values: str, key: str = "k") -> None:
        producer = Producer({"bootstrap.servers": self.plain, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value, key=key, headers={"trace": "t-1"})
        assert producer.flush(60) == 0

    def let_the_console_act(self) -> None:
        """What docs/security.md tells an operator to grant."""
        self.allow("console", USER, "User:", CREATE_TOKENS, pattern=PREFIXED)
        self.allow("console", CLUSTER, "kafka-cluster", DESCRIBE)


@contextmanager
def ottla_cluster(**more: str) -> Iterator[SecuredCluster]:
    with Broker(properties={**secured_properties(), **more}) as broker:
        ports = broker.node.ports
        yield SecuredCluster(f"127.0.0.1:{ports['PLAINTEXT']}", f"127.0.0.1:{ports['SASL_PLAINTEXT']}", ottla=True)


@contextmanager
def apache_cluster(folder: Path) -> Iterator[SecuredCluster]:
    kafka = ApacheKafka(folder)
    (sasl,) = free_ports(1)
    given = secured_properties(str(sasl), str(kafka.port), str(kafka.controller_port))
    advertised = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    kafka.properties |= {**given, "advertised.listeners": advertised}
    with kafka:
        yield SecuredCluster(kafka.bootstrap_servers, f"127.0.0.1:{sasl}", ottla=False)


def users_of(folder: Path, *people: str) -> str:
    file = folder / "users"
    file.write_text("".join(f"{name}:admin:{hash_password('geheim-1')}\n" for name in people or PEOPLE))
    return str(file)


def acting_console(
    cluster: SecuredCluster, folder: Path, rules: str = "act_as_user = true\n", **more: Any
) -> ServedConsole:
    file = folder / "access.toml"
    file.write_text(rules)
    settings = {
        "bootstrap_servers": cluster.sasl, "client": cluster.console_client, "users_file": users_of(folder),
        "access_rules": str(file), **more,
    }  # fmt: skip
    return ServedConsole(**settings)


class Person:
    """Somebody who is logged in."""

    def __init__(self, console: ServedConsole, name: str) -> None:
        self.http = httpx.Client(base_url=console.url, timeout=60, follow_redirects=True)
        answer = self.http.post("/login", data={"name": name, "password": "geheim-1"})
        assert answer.status_code in (200, 403), answer.text

    def get(self, path: str, /, **params: str) -> httpx.Response:
        return self.http.get(path, params=params or None)

    def post(self, path: str, /, **fields: str) -> httpx.Response:
        csrf = self.http.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]
        return self.http.post(path, data={"csrf": csrf, **fields})
