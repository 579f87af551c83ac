"""Everything that a request may need, made once when the console starts."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from ottla.console.access import AccessControl
from ottla.console.cluster.gateway import Gateway
from ottla.console.cluster.sampler import Sampler
from ottla.console.messages.search import Searches
from ottla.console.registry_client import Registry
from ottla.console.settings import ConsoleSettings


@dataclass(slots=True, kw_only=True)
class Site:
    settings: ConsoleSettings
    gateway: Gateway
    sampler: Sampler
    registry: Registry
    searches: Searches
    access: AccessControl
    open_tails: int = 0

    @property
    def client(self) -> dict[str, str]:
        """What readers and writers of messages are made with."""
        return self.gateway.librdkafka


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site
