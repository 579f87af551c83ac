"""A controller node on a real disk without sockets: format, start, submit, stop, kill, start again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.controller.own_node import broker_registration, controller_registration, controller_settings, raft_config

from ottla.controller.bootstrap import read_bootstrap
from ottla.controller.config_rules import ConfigRules
from ottla.controller.events import InSlices
from ottla.controller.format import FormatRequest, format_storage
from ottla.controller.runtime import Blocking, ControllerRuntime, run_inline
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.env.config.load import load
from ottla.metadata.image import MetadataImage
from ottla.metadata.meta_properties import load_ensemble
from ottla.model.ids import METADATA_DIR
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.primitives import Message
from ottla.raft.node import RaftNode
from ottla.raft.voters import VoterEndpoint
from ottla.runtime.clock import SystemClock, SystemRandom
from ottla.runtime.disk import DiskStorage

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


class Answered:
    """The smallest future: a result, an exception, or neither yet."""

    def __init__(self) -> None:
        self.result: Any = None
        self.exception: BaseException | None = None
        self.is_done = False

    def set_result(self, result: Any) -> None:
        self.result, self.is_done = result, True

    def set_exception(self, exception: BaseException) -> None:
        self.exception, self.is_done = exception, True

    def done(self) -> bool:
        return self.is_done


def node_properties(directory: Path, *, dynamic: bool = False, port: int = 9092, controller_port: int = 9093) -> dict:
    quorum = (
        {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}"}
        if dynamic
        else {"controller.quorum.voters": f"1@127.0.0.1:{controller_port}"}
    )
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        **quorum,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory),
    }


class Node:
    def __init__(
        self,
        directory: Path,
        properties: dict[str, str] | None = None,
        *,
        blocking: Blocking = run_inline,
        storage: Any = None,
        clock: Any = None,
        in_slices: InSlices | None = None,
    ) -> None:
        self.storage = storage or DiskStorage()
        self.clock = clock or SystemClock()
        self.random = SystemRandom()
        self.config = load(properties or node_properties(directory))
        self.directory = self.config.metadata_dir
        self.blocking = blocking
        self.in_slices = in_slices
        self.broker_epoch = -1

    @property
    def image(self) -> MetadataImage:
        return self.runtime.publisher.image

    @property
    def metadata_dir(self) -> Path:
        return Path(self.directory) / METADATA_DIR

    def format(self, **options: Any) -> list[str]:
        if self.config.voters:
            standalone = None
        else:
            standalone = tuple(
                VoterEndpoint(e.listener_name, e.host or "127.0.0.1", e.port) for e in self.config.controller_listeners
            )
        request = FormatRequest(
            cluster_id=CLUSTER_ID, node_id=1, log_dirs=self.config.data_dirs, standalone=standalone, **options
        )
        return format_storage(self.storage, self.clock, self.random, request)

    def start(self) -> Node:
        """The controller alone: no broker is registered yet."""
        self.ensemble = load_ensemble(
            self.storage, self.config.data_dirs, metadata_log_dir=self.directory, node_id=self.config.node_id
        )
        directory_id = self.ensemble[self.directory].directory_id
        assert directory_id is not None
        self.raft = RaftNode(self.storage, str(self.metadata_dir), self.clock, raft_config(self.config, directory_id))
        self.state = ControllerState(
            settings=controller_settings(self.config, self.ensemble[self.directory].cluster_id),
            rules=ConfigRules(self.config),
            quorum=self.raft,
            clock=self.clock,
            random=self.random,
        )
        self.runtime = ControllerRuntime(
            self.raft, self.state, new_answer=Answered, blocking=self.blocking, in_slices=self.in_slices
        )
        self.runtime.start(read_bootstrap(self.storage, self.directory))
        return self

    def join(self, previous_broker_epoch: int = -1) -> Node:
        """Register this node's controller and broker, and unfence the broker."""
        self.incarnation = self.state.new_uuid()
        self.submit(controller_registration(self.config, incarnation_id=self.incarnation, host="127.0.0.1"), 0)
        registered = self.submit(
            broker_registration(
                self.config,
                cluster_id=CLUSTER_ID,
                incarnation_id=self.incarnation,
                directories=[p.directory_id for p in self.ensemble.values() if p.directory_id],
                previous_broker_epoch=previous_broker_epoch,
                host="127.0.0.1",
            ),
            4,
        )
        assert registered.error_code == 0, registered
        self.broker_epoch = registered.broker_epoch
        self.heartbeat()
        return self

    def heartbeat(self, *, want_shut_down: bool = False) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.runtime.publisher.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
        )
        return self.submit(request, 2)

    def shut_down(self) -> int:
        """A controlled shutdown; the epoch to come back with."""
        for _ in range(3):
            if self.heartbeat(want_shut_down=True).should_shut_down:
                break
        else:
            raise AssertionError("the controller does not let the broker go")
        self.runtime.close()
        return self.broker_epoch

    def kill(self) -> None:
        """Let go of the files without any of what a shutdown does."""
        for segment in self.raft.log.segments:
            segment.file.close()

    def submit(self, request: Message, version: int) -> Any:
        answer = self.runtime.submit(request, ControllerRequestContext(version=version))
        assert answer.done(), "the answer is still on its way"
        if answer.exception is not None:
            raise answer.exception
        return answer.result


def started(directory: Path, **options: Any) -> Node:
    node = Node(directory, **options)
    node.format()
    return node.start().join()
