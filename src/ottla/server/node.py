"""One node: all parts together, started in order and stopped in reverse.

Sockets are bound before anything on disk is touched, so that a port in use changes nothing. The controller's listener
opens first, because the quorum needs it to elect. The node accepts clients only when every partition is loaded.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.apis import BROKER_APIS, CONTROLLER_APIS, TELEMETRY_APIS
from ottla.broker.broker import Broker
from ottla.broker.controller_server import ControllerServer
from ottla.broker.slices import Slices
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.listeners import Endpoint
from ottla.env.config.load import no_effect_line, unknown_lines
from ottla.env.logging import get_logger
from ottla.log.log_directory import LogDirectory
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.metadata.meta_properties import MetaProperties
from ottla.model.ids import TopicPartition, new_uuid
from ottla.runtime.buffers import BufferPool
from ottla.runtime.descriptors import SocketBudget
from ottla.runtime.listener import Listener, ListenerLimits
from ottla.runtime.request_memory import RequestMemory
from ottla.runtime.response_memory import ResponseMemory
from ottla.runtime.shared_futures import outcome_of
from ottla.runtime.timers import LoopTimers
from ottla.security.exposure import open_listeners
from ottla.security.outgoing import to_controllers
from ottla.server.broker_part import BrokerPart
from ottla.server.cluster.controller_channel import ActiveControllerChannel, ControllerAddress
from ottla.server.cluster.departures import Departures
from ottla.server.cluster.node_addresses import NodeAddresses
from ottla.server.cluster.quorum import QuorumMember
from ottla.server.controller_part import ControllerPart
from ottla.server.directories import Directories
from ottla.server.errors import StartupError
from ottla.server.formatting.storage import voter_endpoints
from ottla.server.machine import NodeMachine, real_machine
from ottla.server.security import NodeSecurity
from ottla.server.sockets import Sockets

if TYPE_CHECKING:
    from ottla.broker.telemetry.subscriptions import ClientTelemetry
    from ottla.runtime.loop_watch import LoopWatch
    from ottla.server.master_keys import MasterKeyFollower
    from ottla.server.monitoring.node_http import Monitoring
    from ottla.server.monitoring.traces import TraceSender

log = get_logger(__name__)


class Node:
    def __init__(self, config: BrokerConfig, machine: NodeMachine | None = None) -> None:
        machine = self._machine = real_machine() if machine is None else machine
        self.config = config
        self._storage = machine.open_storage(config)
        self._clock = machine.clock
        self._random = machine.random
        self._sockets = Sockets(machine.bind)
        self._listeners: list[Listener] = []
        self._failed: asyncio.Future[str] | None = None
        descriptors = machine.descriptors()
        self._directories = Directories(config, self._storage, self._clock, self._random, descriptors.segments)
        self._pool = BufferPool()
        self._slices = Slices()
        self._budget = SocketBudget.available(config.max_connections, descriptors)
        self._per_ip: Counter[str] = Counter()
        self._node_addresses = NodeAddresses(config.node_id)
        limit = config.queued_max_request_bytes
        self._memory = RequestMemory(limit) if limit > 0 else None
        self._answers = ResponseMemory(config.ottla_response_max_queued_bytes)
        self.quorum: QuorumMember | None = None
        self._controller: ActiveControllerChannel | None = None
        self._controller_server: ControllerServer | None = None
        self._controller_part: ControllerPart | None = None
        self._departures: Departures | None = None
        self._security: NodeSecurity | None = None
        self._broker_part: BrokerPart | None = None
        self._monitoring: Monitoring | None = None
        self._traces: TraceSender | None = None
        self._master_keys: MasterKeyFollower | None = None
        self._loop_watch: LoopWatch | None = None

    @property
    def broker(self) -> Broker | None:
        return self._broker_part.broker if self._broker_part is not None else None

    # Addresses

    def bind(self) -> None:
        """Bind the ports. Raises StartupError if a port is in use. Nothing on disk is touched."""
        self._sockets.bind(self.config)

    @property
    def ports(self) -> dict[str, int]:
        """Listener name -> bound port (useful if the configured port is 0)."""
        return self._sockets.ports

    def advertised(self, endpoints: tuple[Endpoint, ...]) -> list[Endpoint]:
        """With the ports that were bound and a name for the wildcard address."""
        return self._sockets.advertised(endpoints)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{e.host}:{e.port}" for e in self.advertised(self.config.advertised_broker_listeners))

    # Start

    async def start(self) -> None:
        """Up and serving, or StartupError with everything released again."""
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
        if config.ottla_loop_stall_ms:
            self._loop_watch = self._machine.watch_loop(config.ottla_loop_stall_ms / 1000)
        if self._loop_watch is not None:
            self._loop_watch.start()
        line = no_effect_line(config)
        if line is not None:
            log.info("settings.accepted", note=line)
        for line in unknown_lines(config.layers.static):
            log.warning("setting.not_recognized", note=line)
        for name in open_listeners(config):
            log.warning(
                "listener.left_open",
                listener=name,
                note="every client that reaches this listener may do everything: see ottla doctor --security",
            )
        if self._sockets.http is not None:
            self._monitoring = await self._monitor(self._sockets.http)
        self._follow_master_keys()
        self._security = NodeSecurity(config, self._clock, self._random, self._image)
        await self._security.start()
        identity = self._directories.open(self._on_directory_failed)
        quorum = self.quorum = self._join_quorum(identity)
        controller = self._controller = self._way_to_controller(quorum)
        quorum.publisher.subscribe(self._on_metadata)
        if config.is_controller:
            self._controller_server = self._serve_as_controller(identity, quorum, controller)
            self._listen(self._controller_server, controller=True)
            self._controller_part = ControllerPart(self, quorum, controller, self._random)
            self._controller_part.start()
        if config.is_broker:
            await self._unless_failed(quorum.caught_up())
            self._broker_part = BrokerPart(
                self, quorum, controller, identity, self._directories.require_logs(), self._machine
            )
            broker = self._broker_part.broker
            if self._sockets.http is not None:
                broker.telemetry = self._receive_telemetry()
            await self._unless_failed(self._broker_part.start(lambda: self._listen(broker, controller=False)))
        self._trace(identity.cluster_id)
        self._tell_of_serving()
        log.info("node.started", node=config.node_id, cluster=identity.cluster_id, listeners=self.bootstrap_servers)

    async def _unless_failed(self, step: Coroutine[Any, Any, None]) -> None:
        """A step of the start. StartupError if the node fails meanwhile: the step might wait for ever."""
        steps, failed = asyncio.ensure_future(step), asyncio.ensure_future(self.failed())
        try:
            await asyncio.wait({steps, failed}, return_when=asyncio.FIRST_COMPLETED)
            if not steps.done():
                raise StartupError(failed.result())
            steps.result()
        finally:
            failed.cancel()
            if not steps.done():
                steps.cancel()
                await asyncio.wait({steps})

    def _follow_master_keys(self) -> None:
        if self.config.encrypts_at_rest:
            from ottla.security.encryption import EncryptedStorage
            from ottla.server.master_keys import MasterKeyFollower

            if isinstance(self._storage, EncryptedStorage):
                self._master_keys = MasterKeyFollower(self._storage)
                self._master_keys.start()

    def _receive_telemetry(self) -> ClientTelemetry:
        from ottla.broker.telemetry.subscriptions import ClientTelemetry

        new_id = partial(new_uuid, self._random.token_bytes)
        return ClientTelemetry(self._clock, new_id, self.config.telemetry_max_bytes)

    def _trace(self, cluster_id: str) -> None:
        """Costs nothing without a collector: nothing is imported, and requests run no further code."""
        server, endpoint = self.broker or self._controller_server, self.config.ottla_traces_endpoint
        if not endpoint or server is None:
            return
        from ottla.broker.tracing import TracingMetrics
        from ottla.server.monitoring.traces import TraceSender

        server.metrics = metrics = TracingMetrics(self._clock, self.config.ottla_traces_sample_ratio)
        self._traces = TraceSender(endpoint, metrics, self._random, self.config.node_id, cluster_id)
        self._traces.start()

    async def _monitor(self, sock: socket.socket) -> Monitoring:
        from ottla.server.monitoring.node_http import Monitoring

        monitoring = Monitoring(
            sock,
            self._listeners,
            lambda: self.quorum is not None and self.quorum.active,
            self.config,
            self._budget,
            delays=None if self._loop_watch is None else self._loop_watch.delays,
        )
        await monitoring.start()
        return monitoring

    def _tell_of_serving(self) -> None:
        server = self.broker or self._controller_server
        if self._monitoring is None or server is None:
            return
        from ottla.broker.metrics import BrokerMetrics

        server.metrics = server.metrics or BrokerMetrics(self._clock)
        server.master_keys = None if self._master_keys is None else self._master_keys.masters
        self._monitoring.serving(server)

    def _way_to_controller(self, quorum: QuorumMember) -> ActiveControllerChannel:
        def leader() -> ControllerAddress | None:
            address = quorum.leader_address
            return None if address is None else ControllerAddress(quorum.leader_id, address.host, address.port)

        return ActiveControllerChannel(
            self.config.node_id,
            local=quorum.runtime,
            is_active=lambda: quorum.active,
            leader=leader,
            security=to_controllers(self.config),
        )

    def _join_quorum(self, identity: MetaProperties) -> QuorumMember:
        quorum = QuorumMember(
            self.config,
            self._storage,
            self._machine.liveness or self._clock,
            self._random,
            identity,
            endpoints=voter_endpoints(self.config, self.ports),
            on_failure=self.fail,
            in_slices=self._slices.start,
        )
        quorum.start()
        return quorum

    def _serve_as_controller(
        self, identity: MetaProperties, quorum: QuorumMember, controller: ActiveControllerChannel
    ) -> ControllerServer:
        departures = self._departures = Departures(
            self.config.node_id,
            image=lambda: quorum.publisher.image,
            active_epoch=lambda: quorum.raft.epoch if quorum.active else None,
            fence=lambda broker_id, epoch: quorum.runtime.fence(broker_id, epoch) if quorum.runtime else None,
        )
        departures.start()
        return ControllerServer(
            on_broker_disconnected=departures.on_disconnected,
            node_id=self.config.node_id,
            cluster_id=identity.cluster_id,
            config=self.config,
            clock=self._clock,
            timers=LoopTimers(asyncio.get_running_loop()),
            metadata=quorum.publisher,
            quorum=quorum,
            controller=controller,
        )

    def _listen(self, server: Broker | ControllerServer, *, controller: bool) -> None:
        """Open the listeners of controllers, or those of brokers."""
        config = self.config
        rates = None
        if self._security is not None:
            self._security.serve(server)
            rates = self._security.rates
        limits = ListenerLimits(
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            per_ip_overrides=config.connection_limits,
            idle_ms=config.connections_max_idle_ms,
            max_frame=config.socket_request_max_bytes,
            busy_poll_us=config.ottla_busy_poll_us,
        )
        apis = CONTROLLER_APIS if controller else BROKER_APIS
        if isinstance(server, Broker) and server.telemetry is not None:
            apis = apis | TELEMETRY_APIS
        for name, sock in self._sockets.by_listener.items():
            if (name in config.controller_listener_names) == controller:
                security = self._security.listeners.get(name) if self._security is not None else None
                own = limits.at_most(config.for_listener(name).max_connections)
                listener = Listener(
                    name,
                    sock,
                    self._machine.dispatcher(server, apis, self._slices),
                    self._pool,
                    own,
                    security,
                    rates,
                    self._budget,
                    self._memory,
                    self._answers,
                    privileged=controller or self._is_of_brokers(name),
                    per_ip=self._per_ip,
                    is_node=self._node_addresses.__contains__,
                    watch_hangups=self._machine.watch_hangups,
                    monotonic=self._machine.monotonic,
                )
                listener.start()
                self._listeners.append(listener)

    def _is_of_brokers(self, listener: str) -> bool:
        """Whether only brokers use the listener: it is the inter-broker listener, and clients have a different
        listener.
        """
        config = self.config
        names = {e.listener_name for e in config.endpoints.listeners} - set(config.controller_listener_names)
        return listener == config.inter_broker_listener and len(names) > 1

    # While the node runs

    def _image(self) -> MetadataImage:
        return self.quorum.publisher.image if self.quorum is not None else MetadataImage()

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.reloaded or any(resource == RESOURCE_BROKER for resource, _ in delta.configs):
            self._follow_dynamic_config(image)
        if self._security is not None:
            self._security.on_metadata(delta, image)
        self._node_addresses.on_metadata(delta, image)
        broker = self.broker
        if broker is not None and broker.metrics is not None:
            for topic in delta.topics_deleted.values():
                broker.metrics.forget_topic(topic.name)

    def _follow_dynamic_config(self, image: MetadataImage) -> None:
        cluster = image.configs.get((RESOURCE_BROKER, ""), {})
        own = image.configs.get((RESOURCE_BROKER, str(self.config.node_id)), {})
        if cluster != self.config.layers.cluster or own != self.config.layers.broker:
            self.config = self.config.with_dynamic(cluster=dict(cluster), broker=dict(own))
            if self._controller_server is not None:
                self._controller_server.config = self.config
            if self._broker_part is not None:
                self._broker_part.on_config(self.config)
            if self._security is not None:
                self._security.follow(self.config)

    def _on_directory_failed(self, directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        if self._broker_part is not None:
            self._broker_part.on_directory_failed(partitions)
        logs = self._directories.logs
        if logs is not None and not logs.online_directories():
            self.fail(f"all log directories have failed, the last was {directory.path}")

    def fail(self, reason: str) -> None:
        """The node cannot continue: `failed` returns the reason."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(reason)

    async def failed(self) -> str:
        """Wait until the node cannot continue; returns the reason."""
        if self._failed is None:
            raise RuntimeError("the node was not started")
        return await outcome_of(self._failed)

    # Stop

    async def stop(self, *, clean: bool = True) -> None:
        """Hand over leadership, refuse clients, write everything to disk, leave the quorum, release the directories."""
        if self._monitoring is not None:
            self._monitoring.stopping()
        if self._traces is not None:
            await self._traces.stop()
            self._traces = None
        if self._master_keys is not None:
            self._master_keys.stop()
            self._master_keys = None
        if clean and self._broker_part is not None:
            await self._broker_part.hand_over()
        if self._monitoring is not None:
            self._monitoring.stop()
            self._monitoring = None
        self._close_listeners(controller=False)
        if self._security is not None:
            self._security.stop()
        broker_part, self._broker_part = self._broker_part, None
        if broker_part is not None:
            await broker_part.leave()
        if self._controller_part is not None:
            self._controller_part.stop()
            self._controller_part = None
        self._node_addresses.stop()
        if self._departures is not None:
            self._departures.stop()
            self._departures = None
        if self._controller is not None:
            self._controller.close()
            self._controller = None
        if self.quorum is not None:
            await self.quorum.stop()
            self.quorum = None
        self._close_listeners(controller=True)
        self._sockets.close()
        if broker_part is not None:
            broker_part.close_logs(clean=clean)
        elif self._directories.logs is not None:
            self._directories.logs.abandon()
        self._directories.logs = None
        self._directories.release()
        if self._loop_watch is not None:
            self._loop_watch.stop()
            self._loop_watch = None

    def _close_listeners(self, *, controller: bool) -> None:
        for listener in list(self._listeners):
            if (listener.name in self.config.controller_listener_names) == controller:
                listener.stop()
                self._listeners.remove(listener)
