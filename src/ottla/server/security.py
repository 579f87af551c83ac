"""The security of a node: TLS and SASL of each listener, and the effects of changed settings.

All errors in the settings are found before the node touches its directories.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.logging import get_logger
from ottla.env.seams import Clock, RandomSource
from ottla.runtime.connection_rates import ConnectionRates
from ottla.runtime.listener_security import ListenerSecurity
from ottla.server.errors import StartupError

if TYPE_CHECKING:
    from ottla.broker.audit.events import AuditLog
    from ottla.broker.controller_server import ControllerServer
    from ottla.broker.login.listener_sasl import ListenerSasl
    from ottla.broker.quotas import Quotas
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.security.acls import Authorizer
    from ottla.security.tls import TlsSource

log = get_logger(__name__)

_PRE_LOGIN_SETTING = "sasl.server.max.receive.size"


class NodeSecurity:
    """One per node; each login reads `image`."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, random: RandomSource, image: Callable[[], MetadataImage]
    ) -> None:
        self._clock = clock
        self._random = random
        self._image = image
        self._refreshing: list[asyncio.Task[None]] = []
        self.authorizer = _authorizer(config)
        self.quotas: Quotas | None = None
        self._audit: AuditLog | None = None
        self.servers: list[Broker | ControllerServer] = []
        """The servers of this node that answer clients; each gets the quotas."""
        self._config = config
        self.rates = ConnectionRates(
            self._address_quota, lambda: self._config.max_connection_creation_rate, self._counted_as
        )
        self.listeners: dict[str, ListenerSecurity] = {}
        for endpoint in config.endpoints.listeners:
            name, protocol = endpoint.listener_name, endpoint.security_protocol
            if protocol != "PLAINTEXT":
                self.listeners[name] = ListenerSecurity(
                    tls=self._tls(config, name, protocol) if protocol.endswith("SSL") else None,
                    sasl=self._sasl(config, name) if protocol.startswith("SASL_") else None,
                    pre_login_bytes=_pre_login_bytes(config),
                )

    async def start(self) -> None:
        """Fetch signing keys that come from an address before any client can log in, and keep them up to date."""
        for security in self.listeners.values():
            if security.sasl is not None and hasattr(security.sasl.keys, "refresh"):
                first = asyncio.Event()
                self._refreshing.append(asyncio.ensure_future(_refresh(security, first)))
                await first.wait()

    def stop(self) -> None:
        if self._audit is not None:
            self._audit.stop()
        for task in self._refreshing:
            task.cancel()
        self._refreshing.clear()

    def serve(self, server: Broker | ControllerServer) -> None:
        server.authorizer = self.authorizer
        server.quotas = self.quotas
        self.servers.append(server)
        if self._config.ottla_audit_enable and isinstance(server, Broker):
            from ottla.broker.audit.events import AuditLog

            self._audit = server.audit = AuditLog(server, self._config.ottla_audit_queue_max_events)
            self._audit.start()

    def _address_quota(self, host: str) -> float | None:
        return self.quotas.table.of_address(host) if self.quotas is not None else None

    def _counted_as(self, host: str) -> str:
        return self.quotas.table.counted_as(host) if self.quotas is not None else host

    def follow(self, config: BrokerConfig) -> None:
        """Dynamic settings have changed. Settings that cannot be used are reported, and the old settings stay in
        force.
        """
        self._config = config
        for name, security in self.listeners.items():
            if security.tls is not None:
                security.tls.follow(config.for_listener(name))
            if security.sasl is not None:
                try:
                    changed = self._sasl(config, name)
                except StartupError as error:
                    log.error("sasl.not_changed", listener=name, reason=str(error))
                else:
                    if changed.keys is not None and security.sasl.keys is not None:
                        changed.keys.adopt(security.sasl.keys)
                    security.sasl = changed

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self.authorizer is not None and (delta.reloaded or delta.acls or not self.authorizer.loaded):
            from ottla.security.acls import Acl

            if delta.reloaded or not self.authorizer.loaded:
                self.authorizer.replace({acl_id: Acl.of(record) for acl_id, record in image.acls.items()})
            else:
                changed = {acl_id: image.acls.get(acl_id) for acl_id in delta.acls}
                self.authorizer.change({acl_id: record and Acl.of(record) for acl_id, record in changed.items()})
        if delta.reloaded or delta.client_quotas:
            self._follow_quotas(image)

    def _follow_quotas(self, image: MetadataImage) -> None:
        if not image.client_quotas:
            self.quotas = None
        elif self.quotas is not None:
            self.quotas.replace(image.client_quotas)
        else:
            from ottla.broker.quotas import Quotas

            self.quotas = Quotas(self._config, self._clock, image.client_quotas)
        for server in self.servers:
            server.quotas = self.quotas

    def _tls(self, config: BrokerConfig, name: str, protocol: str) -> TlsSource:
        from ottla.security.tls import TlsError, TlsSource
        from ottla.security.tls_level import LEVEL_SETTING, lowers_level

        # With SASL a client certificate is requested only if the listener's own setting asks for it, as in Kafka.
        prefixed = f"listener.name.{name.lower()}.ssl.client.auth" in config.properties
        level = config.for_listener(name).ottla_ssl_security_level
        if lowers_level(level):
            log.warning("tls.security_level_lowered", listener=name, level=level, setting=LEVEL_SETTING)
        try:
            return TlsSource(
                config.for_listener(name),
                client_auth=protocol == "SSL" or prefixed,
                monotonic_ms=self._clock.monotonic_ms,
                on_problem=lambda reason: log.error("tls.not_reloaded", listener=name, reason=reason),
            )
        except (TlsError, ValueError) as error:
            raise StartupError(f"listener {name}: {error}") from None

    def _sasl(self, config: BrokerConfig, name: str) -> ListenerSasl:
        from ottla.broker.login.listener_sasl import ListenerSasl, SaslConfigError

        try:
            return ListenerSasl(name, config, self._clock, self._random, self._image)
        except SaslConfigError as error:
            raise StartupError(str(error)) from None


def _authorizer(config: BrokerConfig) -> Authorizer | None:
    """The ACLs, if authorizer.class.name is set. Until the metadata is loaded, only super users have access."""
    if not config.authorizer_class_name:
        return None
    from ottla.security.acls import Authorizer

    return Authorizer(super_users=config.super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)


def _pre_login_bytes(config: BrokerConfig) -> int | None:
    return config.sasl_server_max_receive_size if _PRE_LOGIN_SETTING in config.properties else None


async def _refresh(security: ListenerSecurity, first: asyncio.Event) -> None:
    """Fetch the signing keys when they are due, or when a token named an unknown key. `first` is set after the first
    try.
    """
    from ottla.security.jwks import JwksError, UrlKeys

    loop = asyncio.get_running_loop()
    # Not the loop's pool: an address that hangs would keep one of the threads that remove and sync files.
    threads = ThreadPoolExecutor(1, thread_name_prefix="signing-keys")
    due = 0.0
    while True:
        sasl = security.sasl
        keys = sasl.keys if sasl is not None else None
        if isinstance(keys, UrlKeys) and sasl is not None and (keys.refresh_due or loop.time() >= due):
            try:
                await loop.run_in_executor(threads, keys.refresh)
                due = loop.time() + sasl.keys_refresh_ms / 1000
            except JwksError as error:
                log.error("signing_keys.not_fetched", reason=str(error))
        first.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.sleep(1.0)
