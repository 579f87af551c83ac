"""Settings that only Ottla has; every name begins with `ottla.`, so that none can ever be one of Kafka's."""

from __future__ import annotations

from ottla.env.config.checks import list_of
from ottla.env.config.settings import LIST, Settings, setting


# One setting per paragraph reads as a table; the formatter would spread it over ten lines.
# fmt: off
class OttlaSettings(Settings):
    __slots__ = ()

    ottla_sasl_oauthbearer_allowed_urls: tuple[str, ...] = setting(
        LIST, (), list_of(),
        "Addresses that sasl.oauthbearer.jwks.endpoint.url may name; none other is ever opened.", undeclared=True,
    )
# fmt: on
