"""What a user with a login and no rights may try: control-plane requests, a forged principal, tokens of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.protocol.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from ottla.protocol.generated.envelope_request import EnvelopeRequest
from ottla.protocol.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.protocol.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.protocol.generated.vote_request import VoteRequest
from ottla.testing import Broker
from tests.security.secured import PLAIN_MODULE, jaas
from tests.security.session import Closed, Session

USERS = jaas(PLAIN_MODULE, username="node", password="n", user_node="n", user_alice="a", user_eve="e")
OWNER_MISMATCH, CLUSTER_REFUSED = 63, 31
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
        "sasl.enabled.mechanisms": "PLAIN",
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
