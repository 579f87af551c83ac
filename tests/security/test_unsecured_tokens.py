"""OAUTHBEARER tokens that nobody signed (Kafka's default, for development): by an explicit setting only, with a warning."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.env.config.load import load
from ottla.security.oauthbearer import TokenRefused, TokenRules, validate_token
from ottla.server.errors import StartupError
from ottla.testing import Broker
from tests.env.recorded import node
from tests.security.secured import address, jaas

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SETTING = "ottla.sasl.oauthbearer.unsecured.enable"
NOW_MS = 1_800_000_000_000


def _properties(options: dict[str, str] | None = None, **more: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": jaas(MODULE, **(options or {})),
        **more,
    }


def _admin(broker: Broker, claims: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": address(broker, "SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": claims,
        }
    )


@pytest.mark.parametrize("options", [{}, {"unsecuredValidatorAllowableClockSkewMs": "3000"}])
def test_without_the_setting_no_listener_starts(options: dict[str, str]) -> None:
    with pytest.raises(StartupError, match=SETTING), Broker(properties=_properties(options)):
        pass


def test_a_key_address_and_the_setting_exclude_each_other() -> None:
    more = {SETTING: "true", "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json"}
    with pytest.raises(StartupError, match="cannot be set together"), Broker(properties=_properties(**more)):
        pass


@pytest.mark.parametrize("name", [SETTING, f"listener.name.sasl_plaintext.{SETTING}"])
def test_with_the_setting_a_client_names_itself(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = {"unsecuredValidatorRequiredScope": "read write", "unsecuredValidatorAllowableClockSkewMs": "3000"}
    with Broker(properties=_properties(options, **{name: "true"})) as broker:
        assert "tokens.not_verified" in capfd.readouterr().err
        assert _admin(broker, "principal=alice scope=read,write,more").list_topics(timeout=30).brokers
        refused = _admin(broker, "principal=alice scope=read")
        with pytest.raises(KafkaException):
            refused.list_topics(timeout=2)


def _token(**claims: object) -> str:
    from joserfc.util import urlsafe_b64encode

    parts = ({"alg": "none"}, {"sub": "alice", "exp": NOW_MS / 1000 + 60, **claims})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts) + "."


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ({"scope": "a b"}, True),
        ({"scope": ["b", "a"]}, True),
        ({"scope": "a"}, False),
        ({"scope": 7}, False),
        ({}, False),
        ({"scope": "a b", "exp": NOW_MS / 1000 - 1}, False),
        ({"scope": "a b", "sub": ""}, False),
    ],
)
def test_what_a_token_must_have(claims: dict[str, object], *, fits: bool) -> None:
    rules = TokenRules(keys=None, clock_skew_ms=0, required_scope=("a", "b"), unsecured=True)
    if fits:
        assert validate_token(_token(**claims), rules, NOW_MS).name == "alice"
    else:
        with pytest.raises(TokenRefused):
            validate_token(_token(**claims), rules, NOW_MS)


def test_the_setting_is_off_by_default() -> None:
    assert load(node()).ottla_sasl_oauthbearer_unsecured_enable is False
