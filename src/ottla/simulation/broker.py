"""A simulated broker: the real partitions, logs, fetchers and handlers on a node's fake disk, time and network.

Events replace the tasks of `ottla.server`: register, catch up, load the logs, follow, be unfenced, stay alive. Nothing
is decided here. A process that dies keeps its writes; only a power cut loses unsynced writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.broker.channels import NoPeers, Peers
from ottla.broker.connection import Connection
from ottla.broker.context import RequestContext
from ottla.broker.deferred import Answer, Deferred
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fetch.sessions import FetchSessions
from ottla.broker.handlers import fetch, list_offsets, produce
from ottla.env.config.overrides import resolve_topic_config
from ottla.env.config.topic import TopicConfig
from ottla.log.log_directory import LogDirectory
from ottla.log.log_store import LogStore
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.publisher import MetadataPublisher
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition, Uuid, new_uuid
from ottla.protocol.api import response_class
from ottla.protocol.generated import broker_registration_request as registration
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.fetch_request import FetchRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsRequest
from ottla.protocol.generated.produce_request import ProduceRequest
from ottla.protocol.primitives import Message
from ottla.raft.config import Address
from ottla.raft.outbound import Outbound
from ottla.replication.context import ReplicaContext
from ottla.replication.directories import DirectoryAssignments
from ottla.replication.fetcher import FetcherSettings
from ottla.replication.fetchers import Fetchers
from ottla.replication.proposals import IsrProposals
from ottla.replication.replicas import Replicas
from ottla.simulation.following import Following
from ottla.simulation.world import SimulatedRandom

if TYPE_CHECKING:
    from ottla.broker.audit.events import AuditLog
    from ottla.broker.metrics import BrokerMetrics
    from ottla.broker.produce.record_workers import RecordWorkers
    from ottla.broker.quotas import Quotas
    from ottla.broker.schemas.schema_validation import SchemaValidation
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock, Timers
    from ottla.metadata.image import MetadataImage
    from ottla.model.ids import NodeId
    from ottla.replication.throttle import Throttle
    from ottla.security.acls import Authorizer
    from ottla.simulation.node import SimulatedNode

LOG_DIR = "/logs"
LAG_MS = 2_000
"""replica.lag.time.max.ms: a simulated life is short."""
HEARTBEAT_MS = 400.0
RETRY_MS = 100.0
CONTROLLER_TIMEOUT_MS = 1_500.0
CHECKPOINT_MS = 1_500.0
FLUSH_MS = 2_500.0
STOPPING_MS = 4_000.0


@dataclass(slots=True, kw_only=True)
class SimulatedPlane:
    """What the handlers of Produce, Fetch and ListOffsets touch (`ottla.broker.planes.ProducePlane`)."""

    node_id: NodeId
    config: BrokerConfig
    clock: Clock
    timers: Timers
    metadata: MetadataPublisher
    logs: LogStore
    replicas: Replicas
    fetch_sessions: FetchSessions
    authorizer: Authorizer | None = None
    quotas: Quotas | None = None
    audit: AuditLog | None = None
    metrics: BrokerMetrics | None = None
    leader_throttle: Throttle | None = None
    schemas: SchemaValidation | None = None
    record_workers: RecordWorkers | None = None
    peers: Peers = field(default_factory=NoPeers)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def transactions(self) -> TransactionCoordinator:
        raise RuntimeError("a simulated broker has no transaction coordinator")


class _Silent:
    """The peer of a simulated connection: the network gets answers from `SimulatedBrokerPart.handle`."""

    def send(self, pieces: list[Any]) -> None: ...

    def close(self) -> None: ...

    def resume(self) -> None: ...

    def lift_limits(self) -> None: ...


_HANDLERS: dict[type[Message], Callable[[RequestContext[SimulatedPlane], Any], Answer[Any]]] = {
    FetchRequest: fetch.handle,
    ProduceRequest: produce.handle,
    ListOffsetsRequest: list_offsets.handle,
}


def broker_address(node_id: int) -> Address:
    return Address(f"b{node_id}", 9092)


class SimulatedBrokerPart:
    """One life of one broker."""

    def __init__(self, node: SimulatedNode, publisher: MetadataPublisher, directory: Uuid) -> None:
        self._node = node
        self._publisher = publisher
        self._directory = directory
        random = SimulatedRandom(node.world.random)
        self._incarnation = new_uuid(random.token_bytes)
        self.logs = LogStore(node.disk, random, [LOG_DIR], on_directory_failed=self._on_directory_failed)
        self.logs.open_directories({LOG_DIR: directory})
        self.context = ReplicaContext(node.node_id, node.clock, LAG_MS)
        fetchers = Fetchers(self.context, FetcherSettings(backoff_ms=200))
        self.replicas = Replicas(
            node.node_id, self.logs, node.clock, self._topic_config, context=self.context, fetchers=fetchers
        )
        self.context.propose = IsrProposals(self.context, node.timers, self._send).propose
        self.replicas.directories = DirectoryAssignments(self.context, node.timers, self._send)
        self.following = Following(node, self)
        fetchers.on_changed = self.following.on_changed
        self._plane = SimulatedPlane(
            node_id=node.node_id,
            config=node.spec.rules,
            clock=node.clock,
            timers=node.timers,
            metadata=publisher,
            logs=self.logs,
            replicas=self.replicas,
            fetch_sessions=FetchSessions(100, node.clock, random),
        )
        self._connection = Connection(
            Dispatcher(self._plane, {}), _Silent(), client_host="simulated", client_port=0, listener="PLAINTEXT"
        )
        self.ready = False
        self.stopping = False
        self.waiting: set[Outbound] = set()

    @property
    def broker_epoch(self) -> int:
        return self.context.broker_epoch

    def _topic_config(self, topic: str) -> TopicConfig:
        return resolve_topic_config(self._publisher.image.topic_config(topic), self._node.spec.rules)

    # ------------------------------------------------------------------------------------------------ coming and going

    def start(self) -> None:
        self._register()

    def _register(self) -> None:
        request = registration.BrokerRegistrationRequest(
            broker_id=self._node.node_id,
            cluster_id=self._node.spec.config.cluster_id,
            incarnation_id=self._incarnation,
            listeners=[registration.Listener("PLAINTEXT", f"b{self._node.node_id}", 9092, 0)],
            features=[
                registration.Feature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
            log_dirs=[self._directory],
            previous_broker_epoch=self.logs.previous_broker_epoch,
        )
        self._send(request, self._on_registered)

    def _on_registered(self, response: Any) -> None:
        if response is None or response.error_code:
            self._later(RETRY_MS, self._register)
            return
        self.context.broker_epoch = response.broker_epoch
        if not self.ready:
            self._catch_up()

    def _catch_up(self) -> None:
        """Behind the registration the metadata is as new as the cluster's: older metadata would call new logs strays."""
        if self._publisher.offset < self.broker_epoch:
            self._later(10.0, self._catch_up)
            return
        self.replicas.load(self._publisher.image)
        self.ready = True
        self._publisher.subscribe(self.replicas.on_metadata)
        self._later(LAG_MS / 2, self._shrink)
        self._later(CHECKPOINT_MS, self._checkpoint)
        self._later(FLUSH_MS, self._flush)
        self._heartbeat()

    def _heartbeat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._node.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._publisher.offset,
            want_shut_down=self.stopping,
            offline_log_dirs=[d.directory_id for d in self.logs.directories if d.offline],
        )
        self._send(request, self._on_heartbeat)

    def _on_heartbeat(self, response: Any) -> None:
        if response is not None and response.should_shut_down:
            self.end()
            return
        if response is not None and response.error_code:
            self._later(RETRY_MS, self._register)
        own = self._publisher.image.brokers.get(self._node.node_id)
        soon = self.stopping or own is None or own.fenced
        self._later(50.0 if soon else HEARTBEAT_MS, self._heartbeat)

    def stop(self) -> None:
        """Controlled shutdown: the leaders go first, then everything is synced and marked clean."""
        if self.ready and not self.stopping:
            self.stopping = True
            self._later(STOPPING_MS, self.end)

    def end(self) -> None:
        node = self._node
        node.world.note(lambda: f"{node.node_id} ends cleanly")
        self.logs.shutdown(node.clock.time_ms(), self.broker_epoch)
        node.kill()

    def _on_directory_failed(self, _directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        """The broker has only one directory: without it the broker has nothing to serve."""
        self.replicas.on_directory_failed(partitions)
        self._node.on_failure(OSError(f"{LOG_DIR} failed"))

    # --------------------------------------------------------------------------------------------------------- duties

    def _later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._node.timers.call_later(delay_ms, action)

    def _shrink(self) -> None:
        self.replicas.shrink_isrs()
        self._later(LAG_MS / 2, self._shrink)

    def _checkpoint(self) -> None:
        self.logs.checkpoint_high_watermarks(sync=False)
        self.logs.checkpoint_recovery_points(sync=False)
        self._later(CHECKPOINT_MS, self._checkpoint)

    def _flush(self) -> None:
        """Segments that were rolled away."""
        now_ms = self._node.clock.time_ms()
        self.logs.remove_due_files(now_ms)
        for log in self.logs.online_logs():
            if log.recovery_point < log.active_segment.base_offset:
                try:
                    log.flush(now_ms, log.active_segment.base_offset)
                except KafkaError:
                    continue  # the directory is offline now
        self._later(FLUSH_MS, self._flush)

    # ------------------------------------------------------------------------------------------------------- requests

    def _send(self, request: Message, done: Callable[[Any], None]) -> None:
        """Send to the node that this broker has as the active controller; `done` gets None without an answer."""
        raft = self._node.raft
        leader = -1 if raft is None else raft.leader_id
        self.ask(Address(f"n{leader}", 9093), leader, request, CONTROLLER_TIMEOUT_MS, done)

    def ask(
        self, address: Address, node_id: int, request: Message, timeout_ms: float, done: Callable[[Any], None]
    ) -> None:
        outbound = Outbound(address, node_id, request, timeout_ms, lambda response, _connection_refused: done(response))
        self.waiting.add(outbound)
        self._node.network.send(self._node.door, outbound)

    def answered(self, outbound: Outbound, response: Message | None) -> None:
        """Called once: a second copy of an answer, or a late answer, is dropped."""
        if outbound in self.waiting:
            self.waiting.discard(outbound)
            outbound.on_response(response, False)

    def handle(self, request: Message, reply: Callable[[Any], None]) -> None:
        """Handle a request of a client or a broker with the handlers of a real broker."""
        if not self.ready:
            return
        context = RequestContext(
            self._plane, self._connection, request.API_KEY, request.MAX_VERSION, client_id="simulated"
        )
        try:
            answer = _HANDLERS[type(request)](context, request)
        except KafkaError as error:
            answer = response_class(request.API_KEY)()
            answer.error_code = int(error.code)  # type: ignore[attr-defined]  # those that are asked here have one
        if isinstance(answer, Deferred):
            answer.then(lambda response: reply(_as_sent(response)))
        else:
            reply(_as_sent(answer))


def _as_sent(response: Any) -> Any:
    """File slices as the bytes that they are at this moment."""
    for topic in getattr(response, "responses", ()):
        for data in getattr(topic, "partitions", ()):
            if data.records is not None and not isinstance(data.records, bytes):
                data.records = data.records.read()
    return response
