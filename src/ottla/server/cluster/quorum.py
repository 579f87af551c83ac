"""This node in the metadata quorum: the log in its directory, and the controller or the observer that follows it.

A controller decides while it is active; a node that is only a broker follows. Both get committed metadata through
`publisher`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ottla.controller.bootstrap import read_bootstrap
from ottla.controller.config_rules import ConfigRules
from ottla.controller.events import InSlices
from ottla.controller.observer import MetadataObserver
from ottla.controller.runtime import ControllerRuntime, Done
from ottla.controller.state import ControllerSettings, ControllerState
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.logging import get_logger
from ottla.env.seams import Clock, RandomSource, Storage
from ottla.metadata.meta_properties import FILE_NAME as META_PROPERTIES
from ottla.metadata.meta_properties import MetaProperties
from ottla.metadata.publisher import MetadataPublisher
from ottla.model.ids import METADATA_DIR, ZERO_UUID, NodeId
from ottla.protocol.primitives import Message
from ottla.raft.answers import known_leader
from ottla.raft.config import Address, RaftConfig
from ottla.raft.errors import RaftError, SnapshotError
from ottla.raft.metadata_log import MetadataLogConfig
from ottla.raft.node import RaftNode
from ottla.raft.outbound import Outbound, Reply
from ottla.raft.roles import Follower, Observer, Resigned
from ottla.raft.snapshot_store import SnapshotRetention
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.runtime.quorum_network import QuorumNetwork
from ottla.runtime.reserved_storage import ReservedStorage
from ottla.runtime.timers import LoopTimers
from ottla.security.outgoing import to_controllers
from ottla.server.errors import StartupError

log = get_logger(__name__)

TICK_MS = 250
"""How often sessions and snapshots are looked at."""
QUORUM_THREADS = 2
"""One thread syncs the metadata log while the other writes a snapshot. Not the loop's pool: all of its threads may
wait for a network, and then nothing would be committed.
"""
RESIGN_TIMEOUT_MS = 1_000
"""How long a stopping leader waits until the other voters have its resignation."""

_SNAPSHOT_ADVICE = (
    "Move the file away if an older snapshot is beside it or the metadata log still begins at offset 0. "
    "Otherwise copy the snapshot from another controller: every controller has it"
)
CAUGHT_UP_CHECK_SECONDS = 0.01
"""How often a broker that waits for metadata checks whether it has caught up."""


class QuorumMember:
    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        clock: Clock,
        random: RandomSource,
        identity: MetaProperties,
        *,
        endpoints: tuple[VoterEndpoint, ...] = (),
        on_failure: Callable[[str], None],
        in_slices: InSlices | None = None,
    ) -> None:
        """`endpoints`: where this node's controller is reached, with the ports that were bound."""
        loop = asyncio.get_running_loop()
        self._config = config
        self._storage = storage = ReservedStorage(storage)
        self._on_failure = on_failure
        self._network = QuorumNetwork(f"ottla-{config.node_id}", self._respond, self._on_bug, to_controllers(config))
        self.raft = RaftNode(
            storage,
            f"{config.metadata_dir}/{METADATA_DIR}",
            clock,
            raft_config(config, identity, endpoints, storage),
            random,
        )
        timers = LoopTimers(loop)
        self._threads = ThreadPoolExecutor(QUORUM_THREADS, thread_name_prefix="quorum")
        blocking = _in_thread(loop, self._threads)
        self.runtime: ControllerRuntime | None = None
        self._observer: MetadataObserver | None = None
        if config.is_controller:
            state = ControllerState(
                settings=controller_settings(config, identity.cluster_id, storage),
                rules=ConfigRules(config),
                quorum=self.raft,
                clock=clock,
                random=random,
            )
            self.runtime = ControllerRuntime(
                self.raft,
                state,
                new_answer=loop.create_future,
                blocking=blocking,
                on_failure=self._on_disk_failure,
                send=self._network.send,
                timers=timers,
                in_slices=in_slices,
            )
            self.driver = self.runtime.driver
        else:
            self._observer = MetadataObserver(
                self.raft,
                blocking=blocking,
                send=self._network.send,
                timers=timers,
                on_failure=self._on_disk_failure,
            )
            self.driver = self._observer.driver
        self._ticks: asyncio.Task[None] | None = None

    @property
    def publisher(self) -> MetadataPublisher:
        if self.runtime is not None:
            return self.runtime.publisher
        if self._observer is None:
            raise RuntimeError("the quorum has neither a controller nor an observer")
        return self._observer.publisher

    @property
    def active(self) -> bool:
        return self.runtime is not None and self.runtime.active

    @property
    def leader_id(self) -> NodeId:
        return self.raft.leader_id

    @property
    def kraft_version(self) -> int:
        return self.raft.kraft_version

    @property
    def leader_address(self) -> Address | None:
        """The address of the active controller; None while it is not known."""
        return known_leader(self.raft.replica)[1]

    # -------------------------------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Load the metadata log; alone in the quorum, become its active controller at once."""
        directory = self._config.metadata_dir
        try:
            if self.runtime is not None:
                self.runtime.start(read_bootstrap(self._storage, directory))
            else:
                self.driver.start()
        except SnapshotError as error:
            raise StartupError(f"{error}. {_SNAPSHOT_ADVICE}") from error
        except RaftError as error:
            raise StartupError(str(error)) from error
        except OSError as error:
            raise StartupError(f"the metadata log in {directory} cannot be used: {error}") from error
        self._ticks = asyncio.ensure_future(self._tick())

    async def caught_up(self) -> None:
        """Wait until the image holds all records that the leader has reported as committed. Our own snapshot is not
        enough: partitions that were created after it would look like strays on our disks.
        """
        while not self._is_caught_up():
            if self.raft.replica.id_taken:
                raise StartupError(
                    f"DUPLICATE_BROKER_REGISTRATION: node.id {self.raft.replica.key.id} is the node.id of the "
                    "quorum's leader; set a different node.id for this node"
                )
            await asyncio.sleep(CAUGHT_UP_CHECK_SECONDS)

    def _is_caught_up(self) -> bool:
        role = self.raft.replica.role
        in_touch = isinstance(role, Follower | Observer) and role.in_touch
        in_quorum = self.raft.is_leader or in_touch
        return in_quorum and not self.publisher.image.empty and self.driver.next_offset >= self.raft.high_watermark

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            if self.runtime is not None:
                self.runtime.tick()
            elif self._observer is not None:
                self._observer.tick()

    async def stop(self) -> None:
        """A leader hands over first; then everything is durable and closed."""
        if self._ticks is not None:
            self._ticks.cancel()
        if self.raft.is_leader and len(self.raft.voters.voters) > 1 and self.driver.failure is None:
            self.driver.resign()
            for _ in range(RESIGN_TIMEOUT_MS // 10):
                if not (isinstance(self.raft.role, Resigned) and self.raft.role.unaware):
                    break
                await asyncio.sleep(0.01)
        (self.runtime or self.driver).close()
        self._storage.close()
        self._network.close()
        self._threads.shutdown(wait=False)

    # --------------------------------------------------------------------------------------------------- what comes in

    def receive(self, request: Message, version: int, reply: Reply) -> None:
        """A request of another member of the quorum."""
        self.driver.receive(request, version, reply)

    def _respond(self, outbound: Outbound, response: Message | None, connection_refused: bool) -> None:  # noqa: FBT001 - as Respond
        self.driver.respond(outbound, response, connection_refused=connection_refused)

    def _on_disk_failure(self, error: OSError) -> None:
        self._on_failure(f"the metadata log cannot be written: {error}")

    def _on_bug(self, error: BaseException) -> None:
        """A broken invariant of the quorum: stop rather than continue with a log that may be wrong."""
        log.error("quorum.failed", error=repr(error), exc_info=error)
        self._on_failure(f"the metadata quorum cannot continue: {error}")


def controller_settings(config: BrokerConfig, cluster_id: str, storage: Storage) -> ControllerSettings:
    return ControllerSettings(
        cluster_id=cluster_id,
        node_id=config.node_id,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        broker_session_timeout_ms=config.broker_session_timeout_ms,
        leader_balance_interval_ms=(
            config.leader_imbalance_check_interval_seconds * 1000 if config.auto_leader_rebalance_enable else 0
        ),
        unclean_election_interval_ms=config.unclean_leader_election_interval_ms,
        token_expiry_interval_ms=config.delegation_token_expiry_check_interval_ms,
        names_ignore_case=any(_ignores_case(storage, path) for path in {config.metadata_dir, *config.data_dirs}),
    )


def _ignores_case(storage: Storage, directory: str) -> bool:
    """Whether a file of a formatted directory is also found under its name in upper case."""
    return storage.exists(f"{directory}/{META_PROPERTIES.upper()}")


def raft_config(
    config: BrokerConfig, identity: MetaProperties, endpoints: tuple[VoterEndpoint, ...], storage: Storage
) -> RaftConfig:
    listener = config.controller_listener_names[0] if config.controller_listener_names else "CONTROLLER"
    static = tuple(
        Voter(node_id, endpoints=(VoterEndpoint(listener, host, port),))
        for node_id, (host, port) in config.voters.items()
    )
    return RaftConfig(
        node_id=config.node_id,
        directory_id=identity.directory_id or ZERO_UUID,
        cluster_id=identity.cluster_id,
        controller=config.is_controller,
        static_voters=VoterSet(static) if static else None,
        bootstrap_servers=_addresses(config.controller_quorum_bootstrap_servers),
        endpoints=endpoints,
        auto_join=config.controller_quorum_auto_join_enable,
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        log=MetadataLogConfig(
            segment_bytes=config.internal_metadata_log_segment_bytes or config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
            is_plain=getattr(storage, "is_plain", None),  # only encrypted storage has this method
        ),
        retention=SnapshotRetention(
            max_record_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            retention_bytes=config.metadata_max_retention_bytes,
            retention_ms=config.metadata_max_retention_ms,
        ),
    )


def _addresses(servers: tuple[str, ...]) -> tuple[Address, ...]:
    addresses = []
    for server in servers:
        host, _, port = server.rpartition(":")
        addresses.append(Address(host.strip("[]"), int(port)))
    return tuple(addresses)


def _in_thread(
    loop: asyncio.AbstractEventLoop, threads: ThreadPoolExecutor
) -> Callable[[Callable[[], None], Done], None]:
    """Run blocking work on one of the threads; `done` is called on the loop."""

    def run(work: Callable[[], None], done: Done) -> None:
        def finished(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None and not isinstance(error, OSError):
                raise error
            done(error)

        loop.run_in_executor(threads, work).add_done_callback(finished)

    return run
