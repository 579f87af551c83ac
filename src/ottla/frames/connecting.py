"""Where `ottla.read` and `ottla.write` find the brokers and the schema registry."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ottla.client.librdkafka import TRANSLATED, security_settings
from ottla.client.settings import ClientSettings
from ottla.tables.topics import settings_from

DEFAULT_SERVERS = "localhost:9092"


def servers(bootstrap_servers: str | None) -> str:
    """The argument, else OTTLA_BOOTSTRAP_SERVERS, else localhost:9092."""
    return bootstrap_servers or os.environ.get("OTTLA_BOOTSTRAP_SERVERS") or DEFAULT_SERVERS


def registry_url(registry: str | None) -> str | None:
    """The argument, else OTTLA_REGISTRY. Without a registry, records are shown without their schemas."""
    return registry or os.environ.get("OTTLA_REGISTRY") or None


def wire_settings(bootstrap_servers: str | None, settings: Mapping[str, str] | None) -> ClientSettings:
    return settings_from({**(settings or {}), "bootstrap.servers": servers(bootstrap_servers)}, "ottla-read")


def producer_settings(bootstrap_servers: str | None, settings: Mapping[str, str] | None) -> dict[str, str]:
    """For librdkafka: Kafka's settings of TLS and SASL are translated, all others pass."""
    properties = dict(settings or {})
    plain = {name: value for name, value in properties.items() if name not in TRANSLATED}
    return {**plain, **security_settings(properties), "bootstrap.servers": servers(bootstrap_servers)}
