"""Who may do what: SCRAM users, ACLs, quotas and a delegation token; returns the secrets that must still log in."""

from __future__ import annotations

import base64
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.client.acls import Entry, Resource, create_acls
from ottla.client.cluster import Cluster
from ottla.model.acls import Operation, PatternType, Permission, ResourceType
from ottla.protocol.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.generated.alter_client_quotas_response import AlterClientQuotasResponse
from ottla.protocol.generated.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from tests.security.session import Session

MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
PASSWORDS = {"ada": "lovelace-1843", "bob": "correct horse"}


def record(cluster: Cluster, servers: str, sasl_servers: str) -> list[dict[str, Any]]:
    """A row for each login: mechanism, name, secret, and whether it is a token."""
    logins = _users(servers)
    _acls(cluster)
    _quotas(cluster)
    host, port = sasl_servers.split(":")
    with Session(int(port)) as session:
        assert session.scram("SCRAM-SHA-256", "ada", PASSWORDS["ada"]).error_code == 0, host
        token = session.ask(CreateDelegationTokenRequest(None, None, [CreatableRenewers("User", "bob")], -1), 3)
        assert token.error_code == 0
    secret = base64.b64encode(bytes(token.hmac)).decode()
    logins.append({"mechanism": "SCRAM-SHA-256", "name": token.token_id, "secret": secret, "token": True})
    return logins


def _users(servers: str) -> list[dict[str, Any]]:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    logins = []
    for name, password in PASSWORDS.items():
        for mechanism, number in MECHANISMS.items():
            credential = UserScramCredentialUpsertion(name, ScramCredentialInfo(number, 4096), password.encode())
            admin.alter_user_scram_credentials([credential])[name].result(30)
            logins.append({"mechanism": mechanism, "name": name, "secret": password, "token": False})
    return logins


def _acls(cluster: Cluster) -> None:
    allow, deny = Permission.ALLOW, Permission.DENY
    ada, bob = "User:ada", "User:bob"
    everything = Resource(ResourceType.TOPIC, "*", PatternType.LITERAL)
    create_acls(
        cluster, everything, [Entry(ada, "*", Operation.READ, allow), Entry(ada, "*", Operation.DESCRIBE, allow)]
    )
    create_acls(
        cluster, Resource(ResourceType.TOPIC, "codec-", PatternType.PREFIXED), [Entry(bob, "*", Operation.READ, allow)]
    )
    create_acls(
        cluster,
        Resource(ResourceType.TOPIC, "codec-gzip", PatternType.LITERAL),
        [Entry(bob, "*", Operation.READ, deny)],
    )
    create_acls(
        cluster,
        Resource(ResourceType.GROUP, "*", PatternType.LITERAL),
        [Entry("User:*", "127.0.0.1", Operation.READ, allow)],
    )
    create_acls(
        cluster,
        Resource(ResourceType.TRANSACTIONAL_ID, "clerk", PatternType.LITERAL),
        [Entry(ada, "*", Operation.WRITE, allow)],
    )
    create_acls(
        cluster,
        Resource(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL),
        [Entry(ada, "*", Operation.IDEMPOTENT_WRITE, allow)],
    )


def _quotas(cluster: Cluster) -> None:
    user, client = EntityData("user", "ada"), EntityData("client-id", "batch")
    entries = [
        EntryData([user], [OpData("producer_byte_rate", 1e7, False)]),
        EntryData([user, client], [OpData("consumer_byte_rate", 2e7, False), OpData("request_percentage", 150.0, False)]),
        EntryData([EntityData("user", None)], [OpData("controller_mutation_rate", 1000.0, False)]),
        EntryData([EntityData("ip", "127.0.0.9")], [OpData("connection_creation_rate", 50.0, False)]),
    ]  # fmt: skip
    answer = cluster.controller_call(
        "alterClientQuotas", AlterClientQuotasRequest(entries, False), AlterClientQuotasResponse
    )
    assert [one.error_code for one in answer.entries] == [0] * len(entries)
