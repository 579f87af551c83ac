"""With an authorizer an API without a rule is closed to everyone: every API that is served has one."""

from __future__ import annotations

from ottla.broker.apis import BROKER_APIS, CONTROLLER_APIS, TELEMETRY_APIS
from ottla.broker.authorization.table import BROKER_RULES, CONTROLLER_RULES
from ottla.protocol.api_keys import ApiKey


def names(keys: set[int]) -> list[str]:
    return sorted(ApiKey(key).name for key in keys)


def test_of_a_brokers_listener() -> None:
    assert names({*BROKER_APIS, *TELEMETRY_APIS} - BROKER_RULES.keys()) == []


def test_of_a_controllers_listener() -> None:
    assert names(set(CONTROLLER_APIS) - CONTROLLER_RULES.keys()) == []
