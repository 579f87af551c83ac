"""What a console is started with. One dataclass; the command line and `ottla up` fill it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.security.ruled_access import RuledAccess

MAX_SEARCHES = 8
"""Searches that may run side by side; each has a thread and a consumer."""
MAX_TAILS = 16
MAX_HITS = 1_000
"""Messages that one search keeps."""
MAX_SHOWN_BYTES = 64 * 1024
"""Of one key or value on a page. The page cuts the rest and shows that it did."""
MAX_EXPORT = 1_000_000
"""Records in one export."""
MAX_SQL_ROWS = 1_000
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of a form or a request to the console."""
MAX_LOGIN_BYTES = 16 * 1024
"""Of a request by somebody who has not logged in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the clients, in Kafka's names (security.protocol, sasl.*, ssl.*)."""
    registry_url: str = ""
    pipelines_url: str = ""
    """Where `ottla pipeline serve` answers."""
    node_user: str | None = None
    """NAME:PASSWORD for the brokers' HTTP listeners (lineage); sent over HTTPS or to loopback only."""
    read_only: bool = False
    users_file: str | None = None
    """With this file everybody must log in; without it everybody who reaches the port is an administrator."""
    jwks_url: str | None = None
    """Programs may come with a bearer token signed by these keys."""
    token_issuer: str | None = None
    token_audience: tuple[str, ...] = ()
    access_rules: str | None = None
    """OIDC, roles on topics, masked fields, acting as the user: `ottla.security.access_rules`."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Host names a browser may use, against DNS rebinding; empty means loopback names and the address listened on."""
    audit: tuple[str, ...] = ()
    """Where changes and refusals are recorded: see `ottla.client.audit.sinks`."""
    sample_interval_s: float = 5.0
    name: str = "ottla"

    def web_access(self) -> RuledAccess:
        access = RuledAccess.from_options(
            users_file=self.users_file,
            jwks_url=self.jwks_url,
            issuer=self.token_issuer,
            audience=self.token_audience,
            tls_certificate=self.tls_certificate,
            tls_key=self.tls_key,
            tls_client_ca=self.tls_client_ca,
        )
        return access.with_rules(self.access_rules, console=True)
