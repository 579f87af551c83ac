"""The console asks the cluster as the person who is logged in: by a delegation token that it obtains for that person.

- The console's own principal needs CreateTokens on `User:NAME` (KIP-373) or to be a super user; the cluster needs
  `delegation.token.secret.key` and a listener with SCRAM. What the person may do is then the cluster's decision.
- The console never acts as its own principal: the cluster gives every principal a token for itself, without an ACL.
- The console never acts as `User:ANONYMOUS` or `User:*`: no person owns these names, but ACLs may name them.
- A token lives for `TOKEN_LIFE_S` and is replaced before it ends. It never leaves this process.
- At most `MAX_ACTING` people have connections at once; those that nobody uses are closed after `IDLE_S`.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import OrderedDict
from collections.abc import Mapping

from ottla.client.cluster import Cluster
from ottla.client.errors import AuthenticationFailed, BadSettings, ClientError, check
from ottla.client.group_lag import UnreadTimes
from ottla.client.settings import ClientSettings
from ottla.console.cluster.collect import collect
from ottla.console.cluster.gateway import Gateway
from ottla.console.cluster.snapshot import ClusterSnapshot
from ottla.console.errors import ConsoleError
from ottla.model.errors import KafkaError
from ottla.protocol.generated.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.protocol.generated.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.runtime.shared_futures import outcome_of

MAX_ACTING = 64
TOKEN_LIFE_S = 1800.0
_RENEW_AFTER_S = 1200.0
IDLE_S = 600.0
_CLIENTS = 2
_KNOWN_S = 15.0
"""How long brokers may need to learn of a new token."""
_AGAIN_S = 0.1
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISM = "SCRAM-SHA-256"
_NOBODY = ("ANONYMOUS", "*")


def token_properties(own: Mapping[str, str], token_id: str, secret: bytes) -> dict[str, str]:
    """The console's client settings with the login replaced by a token."""
    kept = {name: value for name, value in own.items() if not name.startswith("sasl.")}
    password = base64.b64encode(secret).decode()
    login = f'{_MODULE} required username="{token_id}" password="{password}" tokenauth="true";'
    return {**kept, "sasl.mechanism": MECHANISM, "sasl.jaas.config": login}


def create_token(cluster: Cluster, name: str) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest("User", name, [], int(TOKEN_LIFE_S * 1000))
    answer = cluster.controller_call(
        "createDelegationToken", request, CreateDelegationTokenResponse, lambda response: response.error_code
    )
    check(answer.error_code)
    return answer


class Acting:
    """One person's way to the cluster, and the last look at what that person may see."""

    def __init__(self, gateway: Gateway, properties: Mapping[str, str]) -> None:
        self.gateway = gateway
        self.properties = properties
        self.made = self.used = time.monotonic()
        self._snapshot: ClusterSnapshot | None = None
        self._seen_at = 0.0
        self._unread = UnreadTimes()
        self._looking = asyncio.Lock()

    @property
    def settings(self) -> ClientSettings:
        return self.gateway.settings

    async def look(self, max_age_s: float) -> ClusterSnapshot:
        """A snapshot that is at most `max_age_s` old, so that the page does not show what the cluster has forbidden since."""
        async with self._looking:
            if self._snapshot is None or time.monotonic() - self._seen_at > max_age_s:
                self._snapshot = await self.gateway.ask(lambda cluster: collect(cluster, self._unread))
                self._seen_at = time.monotonic()
            return self._snapshot


class ActingUsers:
    def __init__(self, own: Gateway, properties: Mapping[str, str]) -> None:
        if not properties.get("security.protocol", "").upper().startswith("SASL_"):
            raise ConsoleError(
                "act_as_user needs a console that logs in to the cluster: set security.protocol=SASL_SSL and "
                "sasl.jaas.config with --command-config"
            )
        self._own = own
        self._properties = properties
        self._own_name = ""
        """The console's own principal, once a token has named its requester."""
        self._users: OrderedDict[str, Acting] = OrderedDict()
        self._making: dict[str, asyncio.Future[Acting]] = {}
        """Tokens that are being created: concurrent requests of one person share a token."""

    async def of(self, name: str) -> Acting:
        """ConsoleError when the cluster gives no token for this person."""
        self._close_idle()
        acting = self._users.get(name)
        if acting is None or time.monotonic() - acting.made > _RENEW_AFTER_S:
            making = self._making.get(name)
            if making is None:
                making = self._making[name] = asyncio.ensure_future(self._make(name))
                making.add_done_callback(lambda _: self._making.pop(name, None))
            acting = await outcome_of(making)
        acting.used = time.monotonic()
        if name in self._users:
            self._users.move_to_end(name)
        while len(self._users) > MAX_ACTING:
            self._users.popitem(last=False)[1].gateway.close()
        return acting

    async def _make(self, name: str) -> Acting:
        if name in (*_NOBODY, self._own_name):
            raise ConsoleError(
                f"the console does not act as User:{name}: only the name of a person can be used", status=403
            )
        try:
            token = await self._own.ask(lambda cluster: create_token(cluster, name))
        except ConsoleError as error:
            raise ConsoleError(
                f"the cluster gives no delegation token for User:{name}: {error.message} "
                f"The console's principal needs CreateTokens on User:{name}.",
                status=403 if error.status == 400 else error.status,
            ) from error
        self._own_name = token.token_requester_principal_name
        if name == self._own_name:
            raise ConsoleError(f"the console does not act as User:{name}: that is the console itself", status=403)
        properties = token_properties(self._properties, token.token_id, token.hmac)
        gateway = self._own.acting(properties, _CLIENTS)
        await gateway.in_thread(lambda: _until_known(gateway.settings))
        made = Acting(gateway, properties)
        before = self._users.pop(name, None)
        if before is not None:
            before.gateway.close()
        self._users[name] = made
        return made

    def _close_idle(self) -> None:
        now = time.monotonic()
        for name in [name for name, acting in self._users.items() if now - acting.used > IDLE_S]:
            self._users.pop(name).gateway.close()

    def close(self) -> None:
        for acting in self._users.values():
            acting.gateway.close()
        self._users.clear()


def _until_known(settings: ClientSettings) -> None:
    """Log in with a new token at every broker: a broker may learn of a token a moment after its creation."""
    deadline = time.monotonic() + _KNOWN_S
    while True:
        try:
            with Cluster(settings) as cluster:
                for broker in cluster.describe("metadata").brokers:
                    cluster.node(broker.node_id, deadline)
                return
        except AuthenticationFailed as error:
            if time.monotonic() > deadline:
                raise ConsoleError(f"no broker accepts the delegation token: {error}", status=503) from error
        except BadSettings as error:
            raise ConsoleError(str(error), status=500) from error
        except (ClientError, KafkaError):  # a broker that is away: the next call reports it
            return
        time.sleep(_AGAIN_S)
