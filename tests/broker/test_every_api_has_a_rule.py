"""With an authorizer an API needs a rule: every rule that the table names exists, and the matrix that both servers are asked
has a row for every API that is not open to everyone.
"""

from __future__ import annotations

from ottla.broker.apis import API_TABLE, BROKER_APIS, TELEMETRY_APIS
from ottla.broker.authorization import rule_of
from ottla.broker.authorization.rules import for_everyone
from ottla.controller.controller import DECISIONS
from ottla.model.ids import ZERO_UUID
from ottla.protocol.api_keys import ApiKey
from tests.security.matrix import probes

OPEN_TO_EVERYONE = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    # the handlers ask by themselves, because owners may do more with their own tokens
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


def test_every_rule_exists_and_few_are_open_to_everyone() -> None:
    rules = {key: (rule_of(key, at_controller=False), rule_of(key, at_controller=True)) for key in API_TABLE}
    assert all(callable(rule) for both in rules.values() for rule in both)
    assert {key for key, both in rules.items() if for_everyone in both} == OPEN_TO_EVERYONE


def test_the_controller_decides_what_is_forwarded_to_it() -> None:
    forwarded = {key for key, api in API_TABLE.items() if api.controller == "decided"}
    assert forwarded <= DECISIONS.keys()
    others = {ApiKey.BROKER_HEARTBEAT} | {key for key in API_TABLE if "DELEGATION_TOKEN" in key.name}
    assert DECISIONS.keys() - forwarded == others - {ApiKey.DESCRIBE_DELEGATION_TOKEN}


def test_the_matrix_asks_every_api_of_a_brokers_listener() -> None:
    """But those that are open to everyone, before the login or after it."""
    asked = {request.API_KEY for request, _ in probes(ZERO_UUID, b"", b"").values()}
    tokens = {key for key in OPEN_TO_EVERYONE if "DELEGATION_TOKEN" in key.name}
    closed = {*BROKER_APIS, *TELEMETRY_APIS} - OPEN_TO_EVERYONE
    assert sorted(ApiKey(key).name for key in (closed | tokens) - asked) == []
