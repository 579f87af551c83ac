"""Send a write to the elected writer, and return its answer after this instance has read the written record too."""

from __future__ import annotations

import asyncio
import base64
import http.client
import ssl
import time
from urllib.parse import urlsplit

from ottla.env.http_answer import read_answer
from ottla.env.logging import get_logger
from ottla.registry.errors import RegistryError, forwarding_failed, unknown_leader
from ottla.registry.http.answers import JSON_V1, Request, RestResponse
from ottla.registry.peers import RegistryPeer
from ottla.registry.service import Registry
from ottla.registry.settings import RegistrySettings

FORWARDED = "x-forward"
OFFSET = "x-ottla-offset"
"""On the writer's answer: how far the log must be read to contain what was written."""
_PAUSE_S = 0.2
_MAX_ANSWER_BYTES = 64 << 20
_UNTRUSTED = (
    "The elected writer {url} is neither a listed nor a signed peer. The request and its credentials are not sent there. "
    "Start every instance with the same --peer-secret-file, or with --peer URL for each other instance"
)
log = get_logger(__name__)


async def forward(registry: Registry, request: Request) -> RestResponse:
    """Retries while there is no writer or the writer does not answer. Repeats a delete only if it was refused."""
    deadline = time.monotonic() + registry.settings.forward_timeout_s
    problem: RegistryError = unknown_leader()
    again = False
    while time.monotonic() < deadline:
        if registry.is_writer:
            raise Elected
        writer = await registry.find_writer(again=again)
        url = writer.url if writer is not None else None
        if writer is None or url is None or url == registry.url:
            problem = unknown_leader()
        elif not _may_send(registry, writer, request):
            problem = forwarding_failed(_UNTRUSTED.format(url=url))
            if again:  # asked of the group a moment ago: this is the writer, and it is none of ours
                log.warning("forward.refused", writer=url, reason="its address is neither listed nor signed")
                raise problem
        else:
            try:
                response = await asyncio.get_running_loop().run_in_executor(
                    registry.forwards, _send, registry.settings, url, request
                )
            except ConnectionRefusedError as error:
                problem = forwarding_failed(f"Unexpected error while forwarding the request to {url}: {error}")
            except (OSError, http.client.HTTPException) as error:
                problem = forwarding_failed(f"Unexpected error while forwarding the request to {url}: {error}")
                if request.method == "DELETE":
                    raise problem from error
            else:
                if response.status != 503:
                    await _catch_up(registry, response)
                    return response
                problem = unknown_leader()
        again = True
        await asyncio.sleep(_PAUSE_S)
    raise problem


def _may_send(registry: Registry, writer: RegistryPeer, request: Request) -> bool:
    """Credentials go to a trusted address only. Without credentials, peers and a secret, any address will do."""
    credentials = bool(registry.settings.forward_user) or "authorization" in request.headers
    return writer.trusted or not (credentials or registry.peers.configured)


class Elected(Exception):
    """This instance became the writer while it looked for one."""


async def _catch_up(registry: Registry, response: RestResponse) -> None:
    """Read your own writes, also here."""
    offset = response.headers.pop(OFFSET, "")
    if offset.isdigit():
        await registry.writer.read_up_to(int(offset))


def _send(settings: RegistrySettings, url: str, request: Request) -> RestResponse:
    parts = urlsplit(url)
    timeout, host = (
        settings.timeout_s,
        parts.hostname or "",
    )  # as `peers.py` has compared them, nothing else of the text
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=settings.forward_ca)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout)
    headers = {"Content-Type": JSON_V1, FORWARDED: "true"}
    if settings.forward_user:
        headers["Authorization"] = "Basic " + base64.b64encode(settings.forward_user.encode()).decode()
    elif "authorization" in request.headers:
        headers["Authorization"] = request.headers["authorization"]
    try:
        connection.request(request.method, request.target, body=request.body, headers=headers)
        response = connection.getresponse()
        offset = response.getheader(OFFSET)
        return RestResponse(
            read_answer(response, _MAX_ANSWER_BYTES), response.status, headers={OFFSET: offset} if offset else {}
        )
    finally:
        connection.close()
