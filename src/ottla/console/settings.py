"""What a console is started with. One dataclass; the command line and `ottla up` fill it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_SEARCHES = 8
"""Searches that may run side by side; each has a thread and a consumer."""
MAX_TAILS = 16
MAX_HITS = 1_000
"""Messages that one search keeps."""
MAX_SHOWN_BYTES = 64 * 1024
"""Of one key or value on a page; the rest is cut and said so."""
MAX_EXPORT = 1_000_000
"""Records in one export."""
MAX_SQL_ROWS = 1_000
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of a form or a request to the console."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the clients, in Kafka's names (security.protocol, sasl.*, ssl.*)."""
    registry_url: str = ""
    pipelines_url: str = ""
    """Where `ottla pipeline serve` answers."""
    read_only: bool = False
    users_file: str = ""
    """With it everybody must log in; without it whoever reaches the port is an administrator."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names a browser may use, against DNS rebinding; empty means loopback names and the address listened on."""
    sample_interval_s: float = 5.0
    name: str = "ottla"
