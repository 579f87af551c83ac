"""The settings of an instance, read at its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.model.user_error import UserError


class RegistryStartError(UserError):
    """The registry cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    bootstrap_servers: str
    host: str = "127.0.0.1"
    port: int = 8081
    advertised_url: str | None = None
    """How other instances reach this one; made from host and port when not given."""
    topic: str = "_schemas"
    group_id: str = "schema-registry"
    alone: bool = False
    """No election: this instance writes. Safe beside others (see `log.py`), but they do not learn its address."""
    replication_factor: int = 3
    """Of the topic when it is made, or as many as there are brokers."""
    schema_max_bytes: int = 1_000_000
    """A record of the topic must fit into max.message.bytes."""
    timeout_s: float = 10.0
    start_timeout_s: float = 60.0
    forward_timeout_s: float = 20.0
    session_timeout_ms: int = 6000
    client_properties: dict[str, str] = field(default_factory=dict)
    """Further settings of librdkafka, such as security.protocol."""
    users_file: str | None = None
    """Basic authentication and roles: see `ottla.security.web_users`."""
    jwks_url: str | None = None
    """Bearer tokens signed by these keys are taken."""
    token_issuer: str | None = None
    token_audience: tuple[str, ...] = ()
    access_rules: str | None = None
    """Roles on some subjects only: `ottla.security.access_rules`."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    forward_user: str | None = None
    """NAME:PASSWORD that forwarded writes use where authentication is on."""
    forward_ca: str | None = None
    audit: tuple[str, ...] = ()
    """Where changes and refusals are recorded: see `ottla.client.audit.sinks`."""
    peers: tuple[str, ...] = ()
    """URLs of other instances: see `ottla.registry.peers`."""
    peer_secret_file: str | None = None
    """File with a secret that all instances share; each signs its address with it."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that clients may use for this instance: see `ottla.security.web_hosts`."""
