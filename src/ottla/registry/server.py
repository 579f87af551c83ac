"""Run an instance: bind, read the topic, serve until a signal stops it. `serve` is the whole of `ottla registry`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable

import uvicorn

from ottla.client.audit.sinks import AuditDestinationError
from ottla.client.audit.trail import AuditTrail
from ottla.registry.http.app import RegistryApp
from ottla.registry.service import Registry
from ottla.registry.settings import RegistrySettings, RegistryStartError
from ottla.registry.topic import client_config
from ottla.security.ruled_access import RuledAccess
from ottla.security.web import WebAccess, WebAccessError
from ottla.security.web_hosts import WebHosts, host_names


class RegistryServer:
    """`start` returns when it answers; `stop` when it does not any more."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._socket = bind(settings.host, settings.port)
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if settings.tls_certificate else "http"
        shown = f"[{host}]" if ":" in host else host
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - recognised, not bound
            shown = socket.gethostname()
        self.url = settings.advertised_url or f"{scheme}://{shown}:{port}"
        self.registry = Registry(settings, self.url)
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._audit = AuditTrail("registry", ())

    async def start(self) -> None:
        settings = self._settings
        try:
            access = web_access(settings)
            self._audit = AuditTrail.open("registry", settings.audit, client_config(settings, "ottla-registry-audit"))
            # Every admitted user has at least the role read; RegistryApp checks the role of the route.
            config = uvicorn.Config(
                self._audit.around(
                    access.protect(
                        RegistryApp(self.registry), role_for=lambda _method, _path: "read", hosts=self._hosts()
                    )
                ),
                log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=5, server_header=False,
                date_header=False, **access.uvicorn_options(),
            )  # fmt: skip
            config.load()
        except (WebAccessError, AuditDestinationError) as error:
            raise RegistryStartError(str(error)) from error
        except OSError as error:
            raise RegistryStartError(f"cannot use the TLS certificate {settings.tls_certificate}: {error}") from error
        await self.registry.start()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._task = asyncio.ensure_future(self._serve(self._server))
        started = asyncio.ensure_future(self._started.wait())
        await asyncio.wait({started, self._task}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            self._task.result()

    def _hosts(self) -> WebHosts:
        names = host_names(self._settings.host, self.url, machine=socket.gethostname())
        return WebHosts((*names, *self._settings.allowed_hosts))

    async def _serve(self, server: uvicorn.Server) -> None:
        # Signals are ours: uvicorn's own handling would end the process twice.
        await server.startup(sockets=[self._socket])
        self._started.set()
        if not server.should_exit:
            await server.main_loop()
        await server.shutdown(sockets=[self._socket])

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await asyncio.wait({self._task}, timeout=10)
        self._socket.close()
        await self.registry.stop()
        await asyncio.to_thread(self._audit.close)


def web_access(settings: RegistrySettings) -> WebAccess:
    access = RuledAccess.from_options(
        users_file=settings.users_file,
        jwks_url=settings.jwks_url,
        issuer=settings.token_issuer,
        audience=settings.token_audience,
        tls_certificate=settings.tls_certificate,
        tls_key=settings.tls_key,
        tls_client_ca=settings.tls_client_ca,
        realm="schema-registry",
    )
    return access.with_rules(settings.access_rules)


def bind(host: str, port: int) -> socket.socket:
    """RegistryStartError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio sets TCP_NODELAY only then, and an answer in two writes would take 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise RegistryStartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return sock


async def serve(
    settings: RegistrySettings, on_started: Callable[[str], None], *, until_stdin_closes: bool = False
) -> None:
    """Runs until SIGTERM or SIGINT; with `until_stdin_closes` also until the standard input closes."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if until_stdin_closes:
        loop.add_reader(0, _on_stdin, stopping)
    server = RegistryServer(settings)
    try:
        await server.start()
        on_started(server.url)
        await stopping.wait()
    finally:
        await server.stop()


def _on_stdin(stopping: asyncio.Event) -> None:
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        stopping.set()
