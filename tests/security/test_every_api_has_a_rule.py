"""With an authorizer an API without a rule is closed to everyone: every API that is served has one, and a row in the
matrix that both servers are asked.
"""

from __future__ import annotations

from ottla.broker.apis import BROKER_APIS, CONTROLLER_APIS, TELEMETRY_APIS
from ottla.broker.authorization.rules import for_everyone
from ottla.broker.authorization.table import BROKER_RULES, CONTROLLER_RULES
from ottla.model.ids import ZERO_UUID
from ottla.protocol.api_keys import ApiKey
from tests.security.matrix import probes


def names(keys: set[int]) -> list[str]:
    return sorted(ApiKey(key).name for key in keys)


def test_of_a_brokers_listener() -> None:
    assert names({*BROKER_APIS, *TELEMETRY_APIS} - BROKER_RULES.keys()) == []


def test_of_a_controllers_listener() -> None:
    assert names(set(CONTROLLER_APIS) - CONTROLLER_RULES.keys()) == []


def test_the_matrix_asks_every_api_of_a_brokers_listener() -> None:
    """But those that are open to everyone, before the login or after it."""
    asked = {request.API_KEY for request, _ in probes(ZERO_UUID, b"", b"").values()}
    closed = {key for key in (*BROKER_APIS, *TELEMETRY_APIS) if BROKER_RULES[key] is not for_everyone}
    tokens = {key for key in BROKER_APIS if "DELEGATION_TOKEN" in ApiKey(key).name}
    assert names((closed | tokens) - asked) == []
