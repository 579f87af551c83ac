"""The console's way to the cluster: a few wire clients, each used by one thread at a time, and errors in words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, LifoQueue
from typing import NamedTuple, Self, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.settings import client_settings
from ottla.console.cluster.librdkafka import librdkafka_settings
from ottla.console.errors import ConsoleError
from ottla.model.errors import ErrorCode, KafkaError

Result = TypeVar("Result")
_CLIENTS = 6
_TIMEOUTS = {"request.timeout.ms": "8000", "default.api.timeout.ms": "8000"}
"""A person does not wait longer than this for a page."""
_PATIENCE_S = 4.0
_AGAIN_S = 0.1
_LOOK_UP_S = 1.0
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: 403,
}


async def until_it_shows(look: Callable[[], Awaitable[Result]], shows: Callable[[Result], bool]) -> Result:
    """Calls `look` until a change shows, for `_PATIENCE_S` at most: brokers learn of a change a moment later."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        result = await look()
        if shows(result) or time.monotonic() > deadline:
            return result
        await asyncio.sleep(_AGAIN_S)


class Threads(NamedTuple):
    """Threads of a gateway and of all gateways that act for a person: exports do not use up those of the pages."""

    questions: ThreadPoolExecutor
    exports: ThreadPoolExecutor


def _new_threads() -> Threads:
    return Threads(
        ThreadPoolExecutor(_CLIENTS * 2, thread_name_prefix="console"),
        ThreadPoolExecutor(_CLIENTS, thread_name_prefix="export"),
    )


class Gateway:
    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        *,
        of: Gateway | None = None,
        clients: int = _CLIENTS,
    ) -> None:
        """`of`: the gateway whose threads this gateway shares; the clients are its own, for a different principal."""
        try:
            self.settings = client_settings(bootstrap_servers, {**_TIMEOUTS, **properties}, client_id="ottla-console")
        except ClientError as error:
            raise ConsoleError(str(error)) from error
        self.librdkafka = librdkafka_settings(bootstrap_servers, properties)
        self._bootstrap_servers = bootstrap_servers
        self._closed = False
        self._clusters: LifoQueue[Cluster] = LifoQueue()
        for _ in range(clients):
            self._clusters.put(Cluster(self.settings))
        self._owns_threads = of is None
        self.threads: Threads = of.threads if of else _new_threads()

    def acting(self, properties: Mapping[str, str], clients: int) -> Self:
        """A gateway to the same cluster with a different login."""
        return type(self)(self._bootstrap_servers, properties, of=self, clients=clients)

    async def ask(self, question: Callable[[Cluster], Result]) -> Result:
        """Run a question in a thread, with a cluster of its own while it lasts."""
        return await self.in_thread(lambda: self.ask_now(question))

    async def ask_until(self, question: Callable[[Cluster], Result], shows: Callable[[Result], bool]) -> None:
        await until_it_shows(lambda: self.ask(question), shows)

    def ask_now(self, question: Callable[[Cluster], Result]) -> Result:
        cluster = self._free_client()
        try:
            return question(cluster)
        except KafkaError as error:
            raise ConsoleError(f"{error.message} ({error.code.name})", status=_STATUS.get(error.code, 400)) from error
        except ClientError as error:
            raise ConsoleError(f"The cluster does not answer: {error}", status=503) from error
        finally:
            if self._closed:
                cluster.close()
            else:
                self._clusters.put(cluster)

    def _free_client(self) -> Cluster:
        """A question may outlive its gateway (a person who was idle for long): such a question gets its own client."""
        while not self._closed:
            try:
                return self._clusters.get(timeout=_LOOK_UP_S)
            except Empty:
                continue
        return Cluster(self.settings)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.threads.questions, work)

    async def in_export_thread(self, work: Callable[[], Result]) -> Result:
        """For what reads a topic for long: pages and logins have other threads."""
        return await asyncio.get_running_loop().run_in_executor(self.threads.exports, work)

    def close(self) -> None:
        self._closed = True
        if self._owns_threads:
            self.threads.exports.shutdown(wait=False, cancel_futures=True)
            self.threads.questions.shutdown(wait=False, cancel_futures=True)
        while not self._clusters.empty():
            self._clusters.get().close()
