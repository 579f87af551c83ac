"""One node: everything put together, started in order and stopped in reverse.

Sockets are bound before anything on disk is touched, so that a port in use changes nothing; clients are let in only
when every partition is loaded and led.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ottla.broker.apis import BROKER_APIS, CONTROLLER_APIS
from ottla.broker.broker import Broker
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.producer_ids import ProducerIds
from ottla.controller.runtime import ControllerRuntime
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.listeners import Endpoint
from ottla.env.config.load import no_effect_line
from ottla.env.config.overrides import resolve_topic_config
from ottla.env.config.topic import TopicConfig
from ottla.env.logging import get_logger
from ottla.log.cleaner import Cleaner
from ottla.log.file_names import LOCK
from ottla.log.log_directory import LogDirectory
from ottla.log.log_store import LogDirectoryError, LogStore
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.metadata.meta_properties import (
    FILE_NAME,
    MetaProperties,
    MetaPropertiesError,
    complete_directory_ids,
    load_ensemble,
)
from ottla.model.ids import TopicPartition, new_uuid
from ottla.model.topic_names import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.replication.context import ReplicaContext
from ottla.replication.fetcher import FetcherSettings
from ottla.replication.fetchers import Fetchers
from ottla.replication.replicas import Replicas
from ottla.replication.throttle import Throttle
from ottla.runtime.buffers import BufferPool
from ottla.runtime.clock import SystemClock, SystemRandom
from ottla.runtime.descriptors import Descriptors
from ottla.runtime.disk import DiskStorage
from ottla.runtime.listener import Limits, Listener, bind
from ottla.runtime.timers import LoopTimers
from ottla.server.controller_channel import ControllerChannel
from ottla.server.errors import StartupError
from ottla.server.groups import make_groups
from ottla.server.housekeeping import Housekeeping
from ottla.server.peers import BrokerPeers
from ottla.server.quorum import open_quorum
from ottla.server.registration import Registration
from ottla.server.replication import Replication
from ottla.server.security import NodeSecurity
from ottla.server.transactions import make_transactions

log = get_logger(__name__)


_SYNC_THREADS = 8


class Node:
    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._storage = DiskStorage()
        self._clock = SystemClock()
        self._random = SystemRandom()
        self._sockets: dict[str, socket.socket] = {}
        self._listeners: list[Listener] = []
        self._failed: asyncio.Future[str] | None = None
        self._logs: LogStore | None = None
        self._quorum: ControllerRuntime | None = None
        self._controller: ControllerChannel | None = None
        self._registration: Registration | None = None
        self._replication: Replication | None = None
        self._peers: BrokerPeers | None = None
        self._housekeeping: Housekeeping | None = None
        self._unlock_metadata_dir: Callable[[], None] | None = None
        self._security: NodeSecurity | None = None
        self.broker: Broker | None = None

    # Addresses

    def bind(self) -> None:
        """Take the ports; StartupError when one is in use. Nothing on disk is touched."""
        for endpoint in self.config.endpoints.listeners:
            if endpoint.listener_name in self._sockets:
                continue
            try:
                self._sockets[endpoint.listener_name] = bind(endpoint.host or "", endpoint.port)
            except OSError as error:
                self._close_sockets()
                raise StartupError(f"cannot listen on {endpoint}: {error.strerror or error}") from error

    def _close_sockets(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    @property
    def ports(self) -> dict[str, int]:
        """Listener name -> port that was bound (of interest where port 0 was asked for)."""
        return {name: sock.getsockname()[1] for name, sock in self._sockets.items()}

    def advertised(self, endpoints: tuple[Endpoint, ...]) -> list[Endpoint]:
        """With the ports that were bound and a name for the wildcard address."""
        ports = self.ports
        return [
            endpoint._replace(
                host=endpoint.host or socket.gethostname(), port=endpoint.port or ports[endpoint.listener_name]
            )
            for endpoint in endpoints
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{e.host}:{e.port}" for e in self.advertised(self.config.advertised_broker_listeners))

    # Start

    async def start(self) -> None:
        """Up and serving, or StartupError with everything released again."""
        if not (self.config.is_broker and self.config.is_controller):
            raise StartupError("process.roles must be broker,controller: separate roles need the cluster, not here yet")
        if self.config.authorizer_class_name:
            raise StartupError(
                "authorizer.class.name: there are no ACLs here yet; a node that ignored them would let everybody in"
            )
        self.bind()
        started = False
        try:
            await self._start()
            started = True
        finally:
            if not started:
                await self.stop(clean=False)

    async def _start(self) -> None:
        config = self.config
        self._failed = asyncio.get_running_loop().create_future()
        line = no_effect_line(config)
        if line is not None:
            log.info("settings.accepted", note=line)
        self._security = NodeSecurity(config, self._clock, self._random, self._image)
        identity = self._open_directories()
        quorum = self._quorum = open_quorum(
            config, self._storage, self._clock, self._random, identity, self._on_metadata_failure
        )
        self._follow_dynamic_config(quorum.publisher.image)
        broker = self.broker = self._build(identity, quorum)
        self._load_logs(broker)
        quorum.publisher.subscribe(self._on_metadata)
        registration = self._registration = self._register_as(identity, quorum, broker)
        await registration.register()
        alone = registration.alone
        if alone:
            # Leaders are known only then: partitions hear of their state once, not of every step of the registration.
            await registration.unfence()
        quorum.publisher.subscribe(broker.replicas.on_metadata)
        quorum.publisher.subscribe(self._on_coordinators_metadata)
        cleaner = Cleaner(
            broker.logs,
            self._clock,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
        )
        self._housekeeping = Housekeeping(config, self._clock, broker.logs, broker.replicas, cleaner)
        self._housekeeping.start()
        if self._replication is not None:
            self._replication.start()
        self._listen(broker)
        if not alone:
            await registration.unfence()
        log.info("node.started", node=config.node_id, cluster=identity.cluster_id, listeners=self.bootstrap_servers)

    def _register_as(self, identity: MetaProperties, quorum: ControllerRuntime, broker: Broker) -> Registration:
        def on_epoch(epoch: int) -> None:
            broker.replicas.context.broker_epoch = epoch

        return Registration(
            self,
            self._require_controller(),
            quorum.publisher,
            identity,
            broker.logs,
            incarnation=new_uuid(self._random.token_bytes),
            on_epoch=on_epoch,
            on_beat=quorum.tick,
        )

    def _require_controller(self) -> ControllerChannel:
        if self._controller is None:
            raise RuntimeError("the way to the controller is not made")
        return self._controller

    def _open_directories(self) -> MetaProperties:
        config = self.config
        try:
            found = load_ensemble(
                self._storage, config.data_dirs, metadata_log_dir=config.metadata_dir, node_id=config.node_id
            )
            found = complete_directory_ids(
                self._storage, found, partial(new_uuid, self._random.token_bytes), self._clock.time_ms()
            )
            logs = LogStore(
                self._storage,
                self._random,
                config.data_dirs,
                open_files=Descriptors.available().segments,
                producer_id_expiration_ms=config.producer_id_expiration_ms,
                on_directory_failed=self._on_directory_failed,
            )
            self._take_metadata_dir(config.metadata_dir)
            logs.open_directories({path: p.directory_id for path, p in found.items() if p.directory_id is not None})
        except (MetaPropertiesError, LogDirectoryError) as error:
            raise StartupError(str(error)) from error
        except OSError as error:
            raise StartupError(f"{error.filename}: {error.strerror}") from error
        self._logs = logs
        return found[config.metadata_dir]

    def _take_metadata_dir(self, path: str) -> None:
        """A data directory may be offline, but without its metadata log a node is nothing: it must be writable. The
        log store locks `log.dirs`; a metadata.log.dir of its own is locked here.
        """
        self._storage.open(f"{path}/{FILE_NAME}").close()
        if path not in self.config.data_dirs:
            self._unlock_metadata_dir = self._storage.lock(f"{path}/{LOCK}")
            if self._unlock_metadata_dir is None:
                raise StartupError(f"{path} is locked: another server is running on it")

    def _build(self, identity: MetaProperties, quorum: ControllerRuntime) -> Broker:
        config, logs = self.config, self._require_logs()
        timers = LoopTimers(asyncio.get_running_loop())
        controller = self._controller = ControllerChannel(
            config.node_id, local=quorum, is_active=lambda: True, leader=lambda: None
        )
        replicas = self._make_replicas(logs)
        self._replication = Replication(lambda: self.config, replicas, timers, controller)
        peers = self._peers = BrokerPeers(lambda: self.config, quorum.publisher)
        replicas.verify_transactions(enabled=config.transaction_partition_verification_enable)
        return Broker(
            node_id=config.node_id,
            cluster_id=identity.cluster_id,
            config=config,
            clock=self._clock,
            timers=timers,
            metadata=quorum.publisher,
            logs=logs,
            replicas=replicas,
            controller=controller,
            producer_ids=ProducerIds(controller.allocate_producer_ids, self._producer_ids_request),
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, self._clock, self._random),
            make_groups=lambda: make_groups(self.config, self._clock, self._random, timers, replicas),
            make_transactions=make_transactions,
            peers=peers,
            leader_throttle=Throttle(
                self._clock,
                config.node_id,
                lambda: self.config.leader_replication_throttled_rate,
                lambda topic: topic.leader_replication_throttled_replicas,
            ),
        )

    def _make_replicas(self, logs: LogStore) -> Replicas:
        config = self.config
        context = ReplicaContext(config.node_id, self._clock, config.replica_lag_time_max_ms)
        settings = FetcherSettings(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
        )
        throttle = Throttle(
            self._clock,
            config.node_id,
            lambda: self.config.follower_replication_throttled_rate,
            lambda topic: topic.follower_replication_throttled_replicas,
        )
        fetchers = Fetchers(context, settings, throttle)
        return Replicas(config.node_id, logs, self._clock, self._topic_config, context=context, fetchers=fetchers)

    def _producer_ids_request(self) -> AllocateProducerIdsRequest:
        epoch = self._registration.broker_epoch if self._registration is not None else -1
        return AllocateProducerIdsRequest(self.config.node_id, epoch)

    def _load_logs(self, broker: Broker) -> None:
        """Load every partition; what the metadata does not know is put aside."""
        now_ms = self._clock.time_ms()
        broker.logs.load(self._topic_config, now_ms)
        for tp in list(broker.logs.logs()):
            registration = broker.image.partition(tp.topic, tp.partition)
            if registration is None or self.config.node_id not in registration.replicas:
                broker.logs.mark_stray(tp, now_ms)

    def _listen(self, broker: Broker) -> None:
        config, pool = self.config, BufferPool()
        limits = Limits(
            max_connections=min(config.max_connections, Descriptors.available().connections),
            max_connections_per_ip=config.max_connections_per_ip,
            idle_ms=config.connections_max_idle_ms,
            max_frame=config.socket_request_max_bytes,
        )
        if self._security is not None:
            self._security.start()
        for name, sock in self._sockets.items():
            apis = CONTROLLER_APIS if name in config.controller_listener_names else BROKER_APIS
            security = self._security.listeners.get(name) if self._security is not None else None
            listener = Listener(name, sock, Dispatcher(broker, apis), pool, limits, security)
            listener.start()
            self._listeners.append(listener)

    # What happens meanwhile

    def _image(self) -> MetadataImage:
        quorum = self._quorum
        return quorum.publisher.image if quorum is not None else MetadataImage()

    def _topic_config(self, topic: str) -> TopicConfig:
        quorum = self._quorum
        overrides = quorum.publisher.image.topic_config(topic) if quorum is not None else {}
        return resolve_topic_config(overrides, self.config)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.reloaded or any(resource == RESOURCE_BROKER for resource, _ in delta.configs):
            self._follow_dynamic_config(image)

    def _on_coordinators_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A coordinator is made when there is a topic to load from, or a client that asks for it."""
        broker = self.broker
        if broker is not None and (broker.has_groups or OFFSETS_TOPIC in image.topics_by_name):
            broker.groups.on_metadata(delta, image, broker.metadata_offset)
        if broker is not None and (broker.has_transactions or TRANSACTION_STATE_TOPIC in image.topics_by_name):
            broker.transactions.on_metadata(delta, image)

    def _follow_dynamic_config(self, image: MetadataImage) -> None:
        cluster = image.configs.get((RESOURCE_BROKER, ""), {})
        own = image.configs.get((RESOURCE_BROKER, str(self.config.node_id)), {})
        if cluster != self.config.layers.cluster or own != self.config.layers.broker:
            self.config = self.config.with_dynamic(cluster=dict(cluster), broker=dict(own))
            if self.broker is not None:
                self.broker.config = self.config
                enabled = self.config.transaction_partition_verification_enable
                self.broker.replicas.verify_transactions(enabled=enabled)
            if self._security is not None:
                self._security.follow(self.config)

    def _on_directory_failed(self, directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        if self.broker is not None:
            self.broker.replicas.on_directory_failed(partitions)
        if self._registration is not None:
            self._registration.beat_now()
        logs = self._logs
        if logs is not None and not logs.online_directories():
            self._fail(f"all log directories have failed, the last was {directory.path}")

    def _on_metadata_failure(self, error: OSError) -> None:
        self._fail(f"the metadata log cannot be written any more: {error}")

    def _fail(self, reason: str) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(reason)

    async def failed(self) -> str:
        """Wait until the node cannot go on; why."""
        if self._failed is None:
            raise RuntimeError("the node was not started")
        return await asyncio.shield(self._failed)

    def _require_logs(self) -> LogStore:
        if self._logs is None:
            raise RuntimeError("the log directories are not open")
        return self._logs

    # Stop

    async def stop(self, *, clean: bool = True) -> None:
        """Hand leadership over, let nobody in, write everything down, release the directories."""
        if clean and self._registration is not None and self.config.controlled_shutdown_enable:
            await self._registration.shut_down()
        for listener in self._listeners:
            listener.stop()
        self._listeners.clear()
        if self._security is not None:
            self._security.stop()
        self._close_sockets()
        if self._housekeeping is not None:
            await self._housekeeping.stop()
            self._housekeeping = None
        if self.broker is not None and self.broker.has_groups:
            self.broker.groups.close()
        if self.broker is not None and self.broker.has_transactions:
            self.broker.transactions.close()
        epoch = -1
        if self._registration is not None:
            epoch = self._registration.broker_epoch
            self._registration.stop()
            self._registration = None
        if self._replication is not None:
            await self._replication.stop()
            self._replication = None
        if self._peers is not None:
            self._peers.close()
            self._peers = None
        if self._controller is not None:
            self._controller.close()
            self._controller = None
        if self._quorum is not None:
            self._quorum.close()
            self._quorum = None
        logs, self._logs = self._logs, None
        if logs is not None:
            if clean:
                logs.shutdown(self._clock.time_ms(), epoch, run_all=_in_threads)
            else:
                logs.abandon()
        if self._unlock_metadata_dir is not None:
            self._unlock_metadata_dir()
            self._unlock_metadata_dir = None
        self.broker = None


def _in_threads(calls: Iterable[Callable[[], None]]) -> None:
    """The syncs of a shutdown side by side: a disk takes several at once."""
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        for _ in pool.map(lambda call: call(), calls):
            pass
