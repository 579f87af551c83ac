"""Brokers and admins of the simulated cluster: they find the active controller by asking nodes, as real clients do.

Acknowledged changes are stored: at the end they must exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.controller.state import ControllerRequestContext
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Uuid, new_uuid
from ottla.protocol.generated import broker_registration_request as registration
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest
from ottla.protocol.primitives import Message
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.world import World

if TYPE_CHECKING:
    from ottla.simulation.clients import Clients
    from ottla.simulation.composition import Composition
    from ottla.simulation.node import Answered, SimulatedNode

TOPICS = ("t1", "x1", "c1", "g1", "r1", "t2")
"""Ordinary topics, a compacted topic, a topic with little retention, the topic of transactions, and the
topic of the group that commits offsets."""
KEPT = {"g1", "x1"}
"""Never deleted: their promises hold over the whole life of the cluster."""


class SimulatedBroker:
    """Only the controller's view of a broker: it registers, sends heartbeats, dies and comes back."""

    def __init__(self, cluster: Workload, broker_id: NodeId) -> None:
        self._cluster = cluster
        self.id = broker_id
        self._directory: Uuid = new_uuid(cluster.world.random.randbytes)
        self._incarnation: Uuid = new_uuid(cluster.world.random.randbytes)
        self.epoch = -1
        self.alive = True

    def restart(self) -> None:
        self._incarnation = new_uuid(self._cluster.world.random.randbytes)
        self.epoch = -1

    def act(self) -> None:
        if self.alive:
            if self.epoch < 0:
                self._cluster.ask(self._registration(), 4, self._on_registered)
            else:
                heartbeat = BrokerHeartbeatRequest(
                    broker_id=self.id, broker_epoch=self.epoch, current_metadata_offset=2**60
                )
                self._cluster.ask(heartbeat, 2, self._on_heartbeat)
        self._cluster.world.call_later(self._cluster.world.random.uniform(300, 900), self.act)

    def _registration(self) -> registration.BrokerRegistrationRequest:
        return registration.BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=self._cluster.cluster_id,
            incarnation_id=self._incarnation,
            listeners=[registration.Listener("PLAINTEXT", f"b{self.id}", 9092, 0)],
            features=[
                registration.Feature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
            log_dirs=[self._directory],
        )

    def _on_registered(self, response: Any) -> None:
        if not response.error_code:
            self.epoch = response.broker_epoch

    def _on_heartbeat(self, response: Any) -> None:
        if response.error_code:
            self.epoch = -1


class Workload:
    def __init__(self, world: World, nodes: Sequence[SimulatedNode], cluster_id: str, brokers: int) -> None:
        self.world = world
        self.cluster_id = cluster_id
        self._nodes = nodes
        self.brokers = [SimulatedBroker(self, 100 + index) for index in range(brokers)]
        self.created: set[str] = set()
        self.maybe: set[str] = set()
        """Topics whose creation or deletion has no answer: they may exist or not."""
        self._names = 0
        self.answered = 0

    def start(self) -> None:
        for broker in self.brokers:
            self.world.call_later(self.world.random.uniform(0, 500), broker.act)
        self.world.call_later(500, self._admin)

    def ask(self, request: Message, version: int, done: Any) -> None:
        """Ask a node that believes to be active, if there is one. The answer counts only if that node still lives."""
        active = [
            n for n in self._nodes if n.runtime is not None and n.runtime.active and n.paused_until <= self.world.now_ms
        ]
        if not active:
            return
        node = self.world.random.choice(active)
        if node.runtime is None:
            return
        node.touched = True
        answer: Answered = node.runtime.submit(request, ControllerRequestContext(version=version))  # type: ignore[assignment]  # as made by SimulatedNode

        def answered(response: Answered) -> None:
            if response.exception is None:
                self.answered += 1
                done(response.result)

        answer.then(answered)

    def _admin(self) -> None:
        dice = self.world.random
        if self.created and dice.random() < 0.25:
            self._delete(dice.choice(sorted(self.created)))
        else:
            self._create(CreatableTopic(self._new_name(), dice.randint(1, 3), 3))
        self.world.call_later(dice.uniform(20, 200), self._admin)

    def _new_name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _create(self, topic: CreatableTopic) -> None:
        name = topic.name
        self.maybe.add(name)
        self.ask(CreateTopicsRequest([topic]), 7, lambda response: self._on_created(name, response))

    def _delete(self, name: str) -> None:
        self.created.discard(name)
        self.maybe.add(name)
        self.ask(DeleteTopicsRequest([], [name]), 5, lambda response: self._on_deleted(name, response))

    def _on_created(self, name: str, response: Any) -> None:
        code = ErrorCode(response.topics[0].error_code)
        if code is ErrorCode.NONE:
            self.created.add(name)
        self.maybe.discard(name)

    def _on_deleted(self, name: str, response: Any) -> None:
        code = ErrorCode(response.responses[0].error_code)
        if code is not ErrorCode.NONE:
            self.created.add(name)
        self.maybe.discard(name)


class WireWorkload(Workload):
    """The admin of a cluster of whole nodes asks a broker, which forwards to the active controller. Topics are few and
    live longer, because they have records.
    """

    def __init__(
        self,
        world: World,
        nodes: Sequence[SimulatedNode],
        cluster_id: str,
        clients: Clients,
        composition: Composition,
    ) -> None:
        super().__init__(world, nodes, cluster_id, 0)
        self._composition = composition
        self._clients = clients
        self._doomed: set[Uuid] = set()
        """Topics that somebody has asked to delete."""

    def ask(self, request: Message, version: int, done: Any) -> None:
        self._clients.spawn(self._ask(request, version, done))

    async def _ask(self, request: Message, version: int, done: Any) -> None:
        broker = self.world.random.choice(self._clients.brokers())
        with contextlib.suppress(NodeUnavailable):
            response = await self._clients.ask(broker, request, version=version)
            self.answered += 1
            done(response)

    def _admin(self) -> None:
        dice = self.world.random
        missing = [name for name in TOPICS if name not in self.created]
        if missing and dice.random() < 0.8:
            self._create(_topic(missing[0], dice.randint(1, 2), self._composition))
        elif dice.random() < 0.5 or not self.created - KEPT:
            self.ask(ElectLeadersRequest(0, None, 5_000), 2, lambda _response: None)
        else:
            self._delete(dice.choice(sorted(self.created - KEPT)))
        self.world.call_later(dice.uniform(50, 700) if missing else dice.uniform(500, 3_000), self._admin)

    def _delete(self, name: str) -> None:
        """By id: a request that is decided late cannot delete a new topic of the same name."""
        image = self._clients.image
        topic = image.topics_by_name.get(name) if image is not None else None
        if topic is not None:
            self.created.discard(name)
            self._doomed.add(topic.id)
            self.ask(DeleteTopicsRequest([DeleteTopicState(None, topic.id)]), 6, lambda _response: None)

    def _on_created(self, name: str, response: Any) -> None:
        """A request may be decided twice: then the topic exists the second time. Or it exists because its deletion is
        under way.
        """
        code = response.topics[0].error_code
        image = self._clients.image
        topic = image.topics_by_name.get(name) if image is not None else None
        if code == ErrorCode.NONE or (
            code == ErrorCode.TOPIC_ALREADY_EXISTS and topic is not None and topic.id not in self._doomed
        ):
            self.created.add(name)


def _topic(name: str, partitions: int, composition: Composition) -> CreatableTopic:
    configs = {"min.insync.replicas": str(composition.min_insync), "internal.segment.bytes": "4000"}
    if name.startswith("c"):
        configs |= {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "1500",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "1500",
        }
    elif name.startswith("r"):
        configs["retention.bytes"] = "12000"
    return CreatableTopic(
        name,
        partitions,
        composition.replicas,
        configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
    )
