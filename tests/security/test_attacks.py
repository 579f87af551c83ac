"""What a user with a login and no rights may try: control-plane requests, a forged principal, tokens of others."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.cluster import Cluster
from ottla.client.settings import client_settings
from ottla.console.cluster.access import AclRow, create_acl
from ottla.controller.delegation_tokens import create_token
from ottla.controller.state import ControllerRequestContext
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.protocol.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from ottla.protocol.generated.envelope_request import EnvelopeRequest
from ottla.protocol.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.protocol.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.protocol.generated.vote_request import VoteRequest
from ottla.security.acls import Acl as StoredAcl
from ottla.security.acls import Authorizer
from ottla.testing import Broker
from tests.console.secured_cluster import ALLOW, CREATE_TOKENS, DENY, LITERAL, USER
from tests.security.secured import PLAIN_MODULE, SCRAM_MODULE, jaas
from tests.security.session import Closed, Session

USERS = jaas(PLAIN_MODULE, username="node", password="n", user_node="n", user_alice="a", user_eve="e")
OWNER_MISMATCH, CLUSTER_REFUSED, TOKEN_REFUSED, INVALID_TYPE, NOT_BY_TOKEN = 63, 31, 65, 67, 64
CONTROL_PLANE: dict[str, tuple[Any, int]] = {
    "vote": (VoteRequest("x"), 2),
    "heartbeat of a broker": (BrokerHeartbeatRequest(1, 1), 1),
    "producer ids": (AllocateProducerIdsRequest(1, 1), 0),
    "envelope with a forged principal": (EnvelopeRequest(b"\0\0", b"\0\0\4node", b"\x7f\0\0\1"), 0),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": jaas(SCRAM_MODULE),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node",
        "delegation.token.secret.key": "of the node",
    }
    with Broker(properties=settings) as running:
        yield running


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", CONTROL_PLANE)
def test_the_control_plane_is_closed_to_users(broker: Broker, name: str) -> None:
    """A broker's listener does not know these requests; a controller's knows them and refuses."""
    request, version = CONTROL_PLANE[name]
    with Session(broker.node.ports["SASL_PLAINTEXT"]).plain("eve", "e") as session, pytest.raises(Closed):
        session.ask(request, version)
    with Session(broker.node.ports["CONTROLLER"]).plain("eve", "e") as session:
        assert session.ask(request, version).error_code == CLUSTER_REFUSED


@pytest.mark.timeout(180)
def test_a_stolen_token_is_not_renewed_or_ended_by_others(broker: Broker) -> None:
    port = broker.node.ports["SASL_PLAINTEXT"]
    with Session(port).plain("alice", "a") as alice, Session(port).plain("eve", "e") as eve:
        made = alice.ask(CreateDelegationTokenRequest(None, None, [], -1), 3)
        assert made.error_code == 0
        assert eve.ask(RenewDelegationTokenRequest(made.hmac, 1000), 2).error_code == OWNER_MISMATCH
        assert eve.ask(ExpireDelegationTokenRequest(made.hmac, -1), 2).error_code == OWNER_MISMATCH
        assert eve.ask(DescribeDelegationTokenRequest(None), 3).tokens == []
        assert [token.token_id for token in alice.ask(DescribeDelegationTokenRequest(None), 3).tokens] == [
            made.token_id
        ]
        assert alice.ask(ExpireDelegationTokenRequest(made.hmac, -1), 2).error_code == 0


def until_listed(session: Session, token_id: str, expiry_ms: int) -> None:
    """The controller answers when a change is committed; the broker follows later. The test's own time limit ends this."""
    while True:
        tokens = session.ask(DescribeDelegationTokenRequest(None), 3).tokens
        if any(token.token_id == token_id and token.expiry_timestamp == expiry_ms for token in tokens):
            return
        time.sleep(0.005)


@pytest.mark.timeout(180)
def test_a_token_makes_no_tokens_and_ends_when_it_is_told(broker: Broker) -> None:
    """A session by token asks nothing about tokens (KIP-48), and an expired one logs nobody in before it is removed."""
    port = broker.node.ports["SASL_PLAINTEXT"]
    with Session(port).plain("alice", "a") as alice:
        made = alice.ask(CreateDelegationTokenRequest(None, None, [], -1), 3)
        password = b64encode(bytes(made.hmac)).decode()
        until_listed(alice, made.token_id, made.expiry_timestamp_ms)
        with Session(port) as session:
            assert session.scram("SCRAM-SHA-256", made.token_id, password, token=True).error_code == 0
            for request in (
                CreateDelegationTokenRequest(None, None, [], -1), RenewDelegationTokenRequest(made.hmac, 1000),
                ExpireDelegationTokenRequest(made.hmac, -1), DescribeDelegationTokenRequest(None),
            ):  # fmt: skip
                assert session.ask(request).error_code == NOT_BY_TOKEN, request
        with Session(port) as session:  # the token's id is no name of a user
            assert session.scram("SCRAM-SHA-256", made.token_id, password).error_code != 0
        ended = alice.ask(ExpireDelegationTokenRequest(made.hmac, 0), 2)
        assert ended.error_code == 0
        until_listed(alice, made.token_id, ended.expiry_timestamp_ms)
        while time.time() * 1000 <= ended.expiry_timestamp_ms + 1:
            pass
        with Session(port) as session:
            assert session.scram("SCRAM-SHA-256", made.token_id, password, token=True).error_code != 0
        assert alice.ask(ExpireDelegationTokenRequest(made.hmac, -1), 2).error_code == 0  # it was there all the time


@pytest.mark.timeout(180)
def test_a_token_is_for_a_user_or_for_nobody(broker: Broker) -> None:
    """A login by token is User:NAME whatever the owner's type was: a token for Foo:node would be one for User:node."""
    port = broker.node.ports["SASL_PLAINTEXT"]
    login = {"sasl.jaas.config": jaas(PLAIN_MODULE, username="node", password="n"), "sasl.mechanism": "PLAIN"}
    with Cluster(client_settings(f"127.0.0.1:{port}", {"security.protocol": "SASL_PLAINTEXT", **login})) as cluster:
        create_acl(cluster, AclRow(USER, "*", LITERAL, "User:eve", "*", CREATE_TOKENS, ALLOW))
        create_acl(cluster, AclRow(USER, "User:node", LITERAL, "User:eve", "*", CREATE_TOKENS, DENY))
    with Session(port).plain("eve", "e") as eve:
        for kind in ("User", "Foo", "user", ""):
            answer = eve.ask(CreateDelegationTokenRequest(kind, "node", [], -1), 3)
            assert answer.error_code == (TOKEN_REFUSED if kind == "User" else INVALID_TYPE), kind
            assert bytes(answer.hmac) == b""
        assert eve.ask(CreateDelegationTokenRequest("User", "alice", [], -1), 3).error_code == 0
    context = ControllerRequestContext(version=3, principal="User:eve")
    state: Any = SimpleNamespace(rules=SimpleNamespace(static=SimpleNamespace(delegation_token_secret_key="s")))
    decided = create_token(state, CreateDelegationTokenRequest("Foo", "node", [], -1), context)
    assert (decided.response.error_code, decided.records) == (INVALID_TYPE, [])  # an older broker asked


def test_before_the_acls_are_loaded_only_super_users_have_access() -> None:
    """allow.everyone.if.no.acl.found speaks of the loaded table: as in Apache Kafka, an unloaded table allows nothing."""
    authorizer = Authorizer(super_users="User:admin", allow_if_no_acl=True)
    assert authorizer.allowed("User:admin", "::1", CREATE_TOKENS, USER, "User:x")
    assert not authorizer.allowed("User:eve", "::1", CREATE_TOKENS, USER, "User:x")
    authorizer.replace({})
    assert authorizer.allowed("User:eve", "::1", CREATE_TOKENS, USER, "User:x")


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0000:0000::0001"])
def test_a_rule_for_an_ipv6_address_holds_in_every_spelling(written: str) -> None:
    """Apache Kafka compares with Java's spelling, 0:0:0:0:0:0:0:1; a socket of Python has ::1."""
    authorizer = Authorizer()
    everyone = StoredAcl(USER, "*", LITERAL, "User:eve", "*", CREATE_TOKENS, ALLOW)
    authorizer.replace(dict(enumerate([everyone, everyone._replace(host=written, permission=DENY)])))
    assert not authorizer.allowed("User:eve", "::1", CREATE_TOKENS, USER, "User:x")
    for other in ("::2", "0.0.0.1", "127.0.0.1"):
        assert authorizer.allowed("User:eve", other, CREATE_TOKENS, USER, "User:x")
