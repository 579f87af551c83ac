"""Run a broker in this process: a node or a cluster, with topics, records, groups, time and faults for tests."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.settings import ClientSettings, client_settings
from ottla.env.logging import configure_if_nobody_did
from ottla.frames.records import DecodedRecord, Decoding, read_topic
from ottla.server.run import new_event_loop
from ottla.testing.clock import BrokerClock
from ottla.testing.faults import KIT_CLIENT
from ottla.testing.layout import INTERNAL, LOGINS, MOST_NODES, plan
from ottla.testing.links import Links
from ottla.testing.names import Namespace, fresh_name
from ottla.testing.node_faults import BrokerFaults
from ottla.testing.node_thread import NodeThread
from ottla.testing.snapshots import as_snapshot

if TYPE_CHECKING:
    from ottla.server.node import Node
    from ottla.testing.exchange import RecordExchange
    from ottla.testing.registry_thread import RegistryThread

_METADATA_S = 20.0
_LOOK_S = 0.002


class Broker:
    """A context manager, and an asynchronous context manager. `directory` keeps the data between uses; without
    `directory`, the data are removed at the end.

    - `nodes`: a cluster of up to 9 nodes, in threads of this process.
    - `registry`: start a schema registry too; `registry_url` is its address.
    - `auth`: passwords by user. Clients log in by SASL PLAIN: see `client_settings`.
    - `properties`: properties of every node, with Kafka's names.
    - `seed`: the seed of faults that act by chance.

    The broker logs warnings and errors only, to the standard error; `ottla.env.logging.configure` changes that. A
    broker that is still running stops when the interpreter ends. A forked child has no broker: there, `stop` does
    nothing.
    """

    node_class: ClassVar[type[NodeThread]] = NodeThread
    """What runs a node. A subclass may run nodes on a different machine."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        registry: bool = False,
        auth: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        seed: int | None = None,
    ) -> None:
        if directory is not None and "," in str(directory):
            raise ValueError(f"log.dirs is a list, so a folder's name cannot have a comma: {directory}")
        if not 1 <= nodes <= MOST_NODES:
            raise ValueError(f"a test broker has 1 to {MOST_NODES} nodes, not {nodes}")
        self._temporary = directory is None
        self.directory = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="ottla-"))
        self._count = nodes
        self._auth = dict(auth or {})
        self._properties = dict(properties or {})
        self._with_registry = registry
        self.clock = BrokerClock()
        self._links = Links()
        self._nodes: dict[int, NodeThread] = {}
        self.faults = BrokerFaults(self._nodes, self._links, seed)
        self._registry: RegistryThread | None = None
        self._registry_url: str | None = None
        self._cluster: Cluster | None = None
        self._exchange: RecordExchange | None = None
        self._decoding = Decoding(None)
        self._lock = RLock()
        self._process = os.getpid()
        self._running = False

    # Addresses

    @property
    def bootstrap_servers(self) -> str:
        """What a client needs; only while the broker runs."""
        return self._servers(LOGINS if self._auth else None)

    @property
    def registry_url(self) -> str:
        """The address of the schema registry; only with `registry=True`, while the broker runs."""
        if self._registry_url is None:
            raise RuntimeError("the broker has no schema registry: use it as `with Broker(registry=True) as broker:`")
        return self._registry_url

    def client_settings(self, user: str | None = None) -> dict[str, str]:
        """The settings of a client of librdkafka, such as confluent-kafka, with the login of `user` (default: the first)."""
        settings = {"bootstrap.servers": self.bootstrap_servers}
        if self._auth:
            name = next(iter(self._auth)) if user is None else user
            settings |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": name,
                "sasl.password": self._auth[name],
            }
        return settings

    def _servers(self, listener: str | None) -> str:
        """The addresses of the nodes that run; of one listener, or of all listeners for clients."""
        running = [thread.node for thread in self._nodes.values() if thread.is_running]
        if not self._running or not running:
            raise RuntimeError("the broker is not running: use it as `with Broker() as broker:`")
        if listener is None:
            return ",".join(node.bootstrap_servers for node in running)
        return ",".join(
            f"{endpoint.host}:{endpoint.port}"
            for node in running
            for endpoint in node.advertised(node.config.advertised_broker_listeners)
            if endpoint.listener_name == listener
        )

    @property
    def nodes(self) -> list[NodeThread]:
        """The nodes, also those that a fault has stopped."""
        return list(self._nodes.values())

    @property
    def node(self) -> Node:
        """The first node: the parts of the server itself, which are no public interface."""
        if not self._running:
            raise RuntimeError("the broker is not running")
        return self._nodes[1].node

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        return self._nodes[1].loop if self._nodes else None

    # Start and stop

    def start(self) -> Self:
        if self._running:
            raise RuntimeError("the broker is already running")
        configure_if_nobody_did("warning")
        self._process = os.getpid()
        self._running = True
        atexit.register(self.stop)
        started = False
        try:
            self._start_nodes()
            if self._with_registry:
                self._start_registry()
            started = True
        finally:
            if not started:  # it failed, or the caller was interrupted
                self.stop()
        return self

    def _start_nodes(self) -> None:
        layout = plan(self.directory, self._count, self._auth, self._properties)
        for planned in layout.nodes:
            self._links.register(planned.node_id, planned.ports)
            self._nodes[planned.node_id] = self.node_class(
                planned.node_id,
                planned.properties,
                cluster_id=layout.cluster_id,
                clock=self.clock,
                faults=self.faults,
                sockets=planned.sockets,
                new_loop=new_event_loop if self._count == 1 else self._links.loop_of(planned.node_id),
            )
        starts = [(thread, thread.begin()) for thread in self.nodes]
        for thread, started in starts:
            thread.wait_for(started)

    def _start_registry(self) -> None:
        from ottla.testing.registry_thread import RegistryThread

        self._registry = RegistryThread(self._kit_servers, min(self._count, 3))
        self._registry_url = self._registry.start()
        self._decoding = Decoding(self._registry_url)

    @property
    def _kit_servers(self) -> str:
        return self._servers(INTERNAL if self._auth else None)

    def stop(self) -> None:
        """A clean shutdown; the data stay unless the folder is temporary."""
        if self._process != os.getpid():
            return
        atexit.unregister(self.stop)
        self._running = False
        self._registry_url = None
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        if self._registry is not None:
            self._registry.stop()
            self._registry = None
        self.faults.clear()
        clean = self._count == 1 or not self._temporary  # nodes that end together have nobody to hand over to
        for thread in self.nodes:
            thread.end_soon(clean=clean)
        for thread in self.nodes:
            thread.stop(clean=clean)
        self._nodes.clear()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.faults.by_chance:
            error.add_note(self.faults.report())
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    # Topics

    def topic(
        self,
        prefix: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic with a name that no other topic has, and return the name. `settings` have Kafka's names."""
        name = fresh_name(prefix)
        self.create_topic(name, partitions=partitions, replication_factor=replication_factor, settings=settings)
        return name

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic with this name. Returns when every node that runs has the topic. Raises TimeoutError with the
        faults of nodes and links, if these faults keep the topic from a node.
        """
        from ottla.client.topics import create_topic

        try:
            with self._kit_cluster() as cluster:
                create_topic(
                    cluster, name, partitions=partitions, replication_factor=replication_factor, configs=settings
                )
        except ClientError as failure:
            if not (faults := self.faults.of_nodes()):
                raise
            raise TimeoutError(f"the topic {name} was not created: {failure} ({faults})") from failure
        self._wait_for_metadata(name)

    def _wait_for_metadata(self, topic: str) -> None:
        deadline = time.monotonic() + _METADATA_S
        while missing := [str(thread.node_id) for thread in self.nodes if not thread.has_topic(topic)]:
            if time.monotonic() > deadline:
                faults = self.faults.of_nodes() or "no node or link has a fault"
                raise TimeoutError(
                    f"the topic {topic} has not reached node {', '.join(missing)} after {_METADATA_S:g} s ({faults})"
                )
            time.sleep(_LOOK_S)

    @contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[Namespace]:
        """For a block, topics and groups with a common prefix. The end of the block deletes them."""
        namespace = Namespace(self, fresh_name(prefix))
        try:
            yield namespace
        finally:
            with self._kit_cluster() as cluster:
                namespace.wipe(cluster)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads the partition."""
        from ottla.client.topics import leaders_of

        with self._kit_cluster() as cluster:
            return leaders_of(cluster, [topic])[topic, partition]

    @property
    def controller(self) -> int:
        """The id of the node whose controller is active: the lowest, when nodes disagree for a moment."""
        quorums = [thread.node.quorum for thread in self.nodes if thread.is_running]
        controllers = sorted(quorum.leader_id for quorum in quorums if quorum is not None and quorum.leader_id >= 0)
        if not controllers:
            raise RuntimeError("no controller is active: the nodes are electing a controller, or do not run")
        return controllers[0]

    # Records

    def produce(
        self,
        topic: str,
        *values: Any,
        key: Any = None,
        headers: Mapping[str, str | bytes] | None = None,
        partition: int | None = None,
    ) -> None:
        """Write a record for each value, and wait until all are acknowledged.

        Text is written as UTF-8, bytes as they are, None as a tombstone, everything else as JSON. The records have the
        time of `broker.clock`.
        """
        self._kit_exchange().produce(topic, values, key=key, headers=headers, partition=partition)

    def consume(self, topic: str, count: int, *, group: str, timeout_s: float = 30.0) -> list[DecodedRecord]:
        """Read the next `count` records as a member of `group`, and commit. Raises WaitError if fewer records come."""
        return self._kit_exchange().consume(topic, count, group, timeout_s, self._decoding)

    def records(self, topic: str, *, committed: bool = True) -> list[DecodedRecord]:
        """All records of a topic, decoded. `committed=False` includes open and aborted transactions."""
        return read_topic(self._kit_settings(), topic, committed=committed, decoding=self._decoding)

    def snapshot(self, topic: str) -> list[dict[str, Any]]:
        """The records of a topic without offsets and times: keys, values and headers, for `inline-snapshot`."""
        return as_snapshot(self.records(topic))

    def wait_for_lag(self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 30.0) -> None:
        """Wait until a group is at most `lag` records behind. Raises WaitError with the lag of each partition."""
        from ottla.testing.groups import wait_for_lag

        with self._kit_cluster() as cluster:
            wait_for_lag(cluster, group, lag, topic, timeout_s)

    # The kit's own clients

    def _kit_settings(self) -> ClientSettings:
        return client_settings(self._kit_servers, client_id=KIT_CLIENT)

    @contextmanager
    def _kit_cluster(self) -> Iterator[Cluster]:
        with self._lock:
            settings = self._kit_settings()
            if self._cluster is None or self._cluster.settings != settings:
                if self._cluster is not None:
                    self._cluster.close()
                self._cluster = Cluster(settings)
            yield self._cluster

    def _kit_exchange(self) -> RecordExchange:
        from ottla.testing.exchange import RecordExchange

        with self._lock:
            if self._exchange is None:
                self._exchange = RecordExchange(self._kit_servers, self.clock)
            return self._exchange
