"""The controller of this node: the metadata log in its directory, and the runtime that decides on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.controller.bootstrap import read_bootstrap
from ottla.controller.config_rules import ConfigRules
from ottla.controller.runtime import ControllerRuntime, Done
from ottla.controller.state import ControllerSettings, ControllerState
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.seams import Clock, RandomSource, Storage
from ottla.metadata.meta_properties import MetaProperties
from ottla.model.ids import METADATA_DIR, ZERO_UUID
from ottla.raft.errors import RaftError
from ottla.raft.metadata_log import MetadataLogConfig
from ottla.raft.node import RaftConfig, RaftNode
from ottla.raft.snapshot_store import SnapshotRetention
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.server.errors import StartupError


def open_quorum(
    config: BrokerConfig,
    storage: Storage,
    clock: Clock,
    random: RandomSource,
    identity: MetaProperties,
    on_failure: Callable[[OSError], None],
) -> ControllerRuntime:
    """Load the metadata log and become its active controller."""
    loop = asyncio.get_running_loop()
    raft = RaftNode(storage, f"{config.metadata_dir}/{METADATA_DIR}", clock, _raft_config(config, identity))
    settings = ControllerSettings(
        cluster_id=identity.cluster_id,
        node_id=config.node_id,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        broker_session_timeout_ms=config.broker_session_timeout_ms,
    )
    state = ControllerState(settings=settings, rules=ConfigRules(config), quorum=raft, clock=clock, random=random)
    runtime = ControllerRuntime(
        raft, state, new_answer=loop.create_future, blocking=_in_thread(loop), on_failure=on_failure
    )
    try:
        runtime.start(read_bootstrap(storage, config.metadata_dir))
    except RaftError as error:
        raise StartupError(str(error)) from error
    except OSError as error:
        raise StartupError(f"the metadata log in {config.metadata_dir} cannot be used: {error}") from error
    return runtime


def _raft_config(config: BrokerConfig, identity: MetaProperties) -> RaftConfig:
    listener = config.controller_listener_names[0] if config.controller_listener_names else "CONTROLLER"
    static = VoterSet(
        tuple(
            Voter(node_id, endpoints=(VoterEndpoint(listener, host, port),))
            for node_id, (host, port) in config.voters.items()
        )
    )
    return RaftConfig(
        node_id=config.node_id,
        directory_id=identity.directory_id or ZERO_UUID,
        static_voters=static if config.voters else None,
        log=MetadataLogConfig(
            segment_bytes=config.metadata_log_segment_bytes, segment_ms=config.metadata_log_segment_ms
        ),
        retention=SnapshotRetention(
            max_record_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            retention_bytes=config.metadata_max_retention_bytes,
            retention_ms=config.metadata_max_retention_ms,
        ),
    )


def _in_thread(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], None], Done], None]:
    """Blocking work on a thread of the loop's pool, its end back on the loop."""

    def run(work: Callable[[], None], done: Done) -> None:
        def finished(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None and not isinstance(error, OSError):
                raise error
            done(error)

        loop.run_in_executor(None, work).add_done_callback(finished)

    return run
