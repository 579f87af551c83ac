"""Where `ottla.read` and `ottla.write` find the brokers and the schema registry, and how both read their settings.

Settings have the names of Kafka's Java clients or those of librdkafka. Both calls read both spellings, so the settings of
an application work unchanged; a setting without meaning for a call has no effect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

from ottla.client.librdkafka import java_settings
from ottla.client.settings import ClientSettings
from ottla.model.user_error import UserError
from ottla.tables.topics import TopicMetadata, settings_from

Settings: TypeAlias = "Mapping[str, str | float | bool]"
"""Values are text, numbers, or True and False."""
DEFAULT_SERVERS = "localhost:9092"
_SERVERS, _SAME_SERVERS = "bootstrap.servers", "metadata.broker.list"
"""librdkafka has two names for one setting."""
_LOGIN_S = 10.0
_PASSWORD_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}


def registry_url(registry: str | None) -> str | None:
    """The argument, else OTTLA_REGISTRY. Without a registry, records are shown without their schemas."""
    return registry or os.environ.get("OTTLA_REGISTRY") or None


def wire_settings(bootstrap_servers: str | None, settings: Settings | None) -> ClientSettings:
    return settings_from(java_settings(_properties(bootstrap_servers, settings)), "ottla-read")


def producer_settings(bootstrap_servers: str | None, settings: Settings | None) -> dict[str, object]:
    """For librdkafka: an idempotent producer that chooses partitions as Java's does, unless the settings differ."""
    from ottla.connect.clients import producer_settings, quiet

    return producer_settings(quiet(_properties(bootstrap_servers, settings)))


def check_login(settings: ClientSettings) -> None:
    """Raises TableError if no broker answers or the login is refused: librdkafka repeats both until its time-out.

    A mechanism that only librdkafka has is not tried.
    """
    if settings.sasl and settings.sasl_mechanism not in _PASSWORD_MECHANISMS:
        return
    with TopicMetadata(settings, _LOGIN_S) as metadata:
        metadata.partitions([])


def _properties(bootstrap_servers: str | None, settings: Settings | None) -> dict[str, str]:
    """The settings as text. The servers are the argument, else the setting, else OTTLA_BOOTSTRAP_SERVERS."""
    properties = {name: _text(name, value) for name, value in (settings or {}).items()}
    other_name = properties.pop(_SAME_SERVERS, None)
    servers = bootstrap_servers or properties.get(_SERVERS) or other_name or os.environ.get("OTTLA_BOOTSTRAP_SERVERS")
    return {**properties, _SERVERS: servers or DEFAULT_SERVERS}


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise UserError(f"the setting {name} is of the type {type(value).__name__}: settings are text, numbers or booleans")
