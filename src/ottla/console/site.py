"""Everything that a request may need. Made once when the console starts; `for_user` narrows it to one person's rights.

A page takes all it shows from its site: gateway, sampler, reach of messages, registry. So a page cannot show what the
person may not see, unless it goes around the site.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from starlette.requests import Request

from ottla.console.access import ANYBODY, AccessControl
from ottla.console.cluster.acting import Acting, ActingUsers
from ottla.console.cluster.gateway import Gateway
from ottla.console.cluster.sampler import Sampler
from ottla.console.cluster.user_sampler import UserSampler
from ottla.console.messages.decode import Decoder
from ottla.console.messages.reach import Reach
from ottla.console.messages.search import Searches
from ottla.console.registry_client import ConsoleRegistry
from ottla.console.settings import ConsoleSettings
from ottla.security.grants import GrantedUser
from ottla.security.masking import TopicMask


class OpenTails:
    """How many tails are open on the whole console."""

    def __init__(self) -> None:
        self.count = 0


@dataclass(slots=True, kw_only=True)
class Site:
    settings: ConsoleSettings
    gateway: Gateway
    sampler: Sampler | UserSampler
    registry: ConsoleRegistry
    searches: Searches
    access: AccessControl
    tails: OpenTails = field(default_factory=OpenTails)
    acting_users: ActingUsers | None = None
    user: GrantedUser = ANYBODY
    acting: Acting | None = None

    @property
    def client(self) -> dict[str, str]:
        """Librdkafka's settings of the console's own principal."""
        return self.gateway.librdkafka

    @property
    def reach(self) -> Reach:
        """What readers and writers of messages are made with."""
        masks = self.access.rules.masks
        return Reach(
            librdkafka=self.client,
            acting=None if self.acting is None else self.acting.settings,
            mask_of=self.mask_of,
            decoder=Decoder(self.registry) if masks.rules else None,
        )

    def mask_of(self, topic: str) -> TopicMask | None:
        return self.access.rules.masks.on(topic, self.user)

    @property
    def wire_properties(self) -> dict[str, str]:
        """The settings of a wire client, in Kafka's names."""
        own = self.settings.client if self.acting is None else self.acting.properties
        return {**own, "bootstrap.servers": self.settings.bootstrap_servers}

    @property
    def limited(self) -> bool:
        """Whether this person sees only a part of the cluster, by grants or by the cluster's own ACLs."""
        return self.acting is not None or self.user.rights.limited

    async def for_user(self, user: GrantedUser) -> Site:
        """Raises ConsoleError if the cluster does not allow the console to act as this person."""
        acting = await self.acting_users.of(user.name) if self.acting_users is not None and user.authenticated else None
        if not user.rights.limited and acting is None:
            return replace(self, user=user)
        if not isinstance(self.sampler, Sampler):
            raise TypeError("a site is narrowed once")
        return replace(
            self,
            user=user,
            acting=acting,
            gateway=self.gateway if acting is None else acting.gateway,
            sampler=UserSampler(self.sampler, user.rights, acting),
        )


def site_of(request: Request) -> Site:
    """The person's, once it is known who asks."""
    site: Site = getattr(request.state, "site", None) or request.app.state.site
    return site
