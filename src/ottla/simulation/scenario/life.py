"""One life of a scenario's cluster: topics are created, clients work, faults happen, everything heals, the logs are read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.records import iterate_records
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.clients import Clients
from ottla.simulation.network import FakeNetwork, Weather
from ottla.simulation.replica_invariants import batches
from ottla.simulation.scenario.batches import record_id_of
from ottla.simulation.scenario.consumer import read_all
from ottla.simulation.scenario.facts import (
    ConsumerFacts,
    Facts,
    FinalLog,
    PartitionFacts,
    StoredRecord,
    TopicPartition,
)
from ottla.simulation.scenario.group import ScenarioMember
from ottla.simulation.scenario.injection import Injection
from ottla.simulation.scenario.nodes import ScenarioNode, build_nodes
from ottla.simulation.scenario.places import ScenarioError
from ottla.simulation.scenario.plan import READY_MS
from ottla.simulation.scenario.producer import ScenarioProducer
from ottla.simulation.scenario.recorder import Recorder
from ottla.simulation.scenario.view import ClientView
from ottla.simulation.scenario.wires import ScenarioWires
from ottla.simulation.world import World

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.simulation.scenario.plan import Scenario, TopicPlan

_STEP_MS = 250.0
_CREATE_RETRY_S = 0.05
_CREATE_ATTEMPTS = 40


class ScenarioCluster:
    """A cluster of whole nodes and its clients, in virtual time."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.facts = Facts()
        self.world = World(seed)
        network = FakeNetwork(self.world)
        delay_ms = scenario.cluster.delay_ms
        network.weather = Weather(delay_ms=(delay_ms * 0.2, delay_ms * 1.8))
        wires = ScenarioWires(self.world, network)
        self.nodes = build_nodes(self.world, network, wires, scenario.cluster)
        self._clients = Clients(self.world, wires, self.nodes)
        for topic in scenario.topics:
            min_isr = int(
                topic.settings.get("min.insync.replicas", scenario.cluster.properties.get("min.insync.replicas", 1))
            )
            for index in range(topic.partitions):
                where = (topic.name, index)
                self.facts.partitions[where] = PartitionFacts(where, min_isr)
        self.recorder = Recorder(self.world, network, self.nodes, self.facts)
        self._injection = Injection(
            self.world, scenario, self.nodes, network, wires, self._clients, self.facts, self.recorder
        )
        self._producers: list[ScenarioProducer] = []
        self._problem = ""

    def run(self) -> dict[TopicPartition, FinalLog]:
        """Raises ScenarioError if the cluster cannot start with the settings of the scenario."""
        run = self.scenario.run
        for node in self.nodes:
            node.start()
        self._clients.spawn(self._create_topics())
        self._injection.schedule()
        self._start_clients()
        self._run_until(min(READY_MS, run.duration_ms))
        self._run_until(run.duration_ms)
        for producer in self._producers:
            producer.stopped = True
        if run.heal:
            self._injection.heal()
        end_ms = run.duration_ms + run.settle_ms
        while self.world.now_ms < end_ms and not self._settled():
            self._run_until(min(self.world.now_ms + _STEP_MS, end_ms))
        self.recorder.finish()
        if self._problem:
            raise ScenarioError(self._problem)
        return {where: self._final_log(partition) for where, partition in self.facts.partitions.items()}

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self._clients.loop.close()

    def _run_until(self, end_ms: float) -> None:
        self.world.run_until(end_ms, self._after_event)

    def _after_event(self) -> None:
        if self._clients.failures:
            raise self._clients.failures[0]
        self.recorder.observe()

    # ------------------------------------------------------------------------------------------------------- the clients

    def _start_clients(self) -> None:
        brokers = [node.node_id for node in self.nodes if node.is_broker]
        topics = [topic.name for topic in self.scenario.topics]
        seed = self.world.seed
        for number, producer_plan in enumerate(self.scenario.producers):
            view = ClientView(brokers, topics, seed + number)
            topic = self.scenario.topic(producer_plan.topic)
            producer = ScenarioProducer(producer_plan, topic, self._clients, view, self.facts)
            self._producers.append(producer)
            self._clients.spawn(producer.run())
        for number, plan in enumerate(self.scenario.consumers):
            view = ClientView(brokers, topics, seed + 1_000 + number)
            facts = ConsumerFacts(plan.name, plan.group, plan.topic)
            self.facts.consumers.append(facts)
            if not plan.group:
                self._clients.spawn(read_all(plan, self.scenario.topic(plan.topic), self._clients, view, facts))
            for member in range(plan.members if plan.group else 0):
                self._clients.spawn(ScenarioMember(plan, f"{plan.name}-{member + 1}", self._clients, view, facts).run())

    async def _create_topics(self) -> None:
        """Before the clients begin; brokers that have not registered yet are no place for replicas."""
        for topic in self.scenario.topics:
            for _ in range(_CREATE_ATTEMPTS):
                error = await self._create(topic)
                if error in {"", ErrorCode.TOPIC_ALREADY_EXISTS.name}:
                    break
                await asyncio.sleep(_CREATE_RETRY_S)
            else:
                self._problem = f"topic {topic.name} cannot be created: {error}; look at the faults of the first second"

    async def _create(self, topic: TopicPlan) -> str:
        """An error, or nothing."""
        configs = [CreatableTopicConfig(name, value) for name, value in topic.settings.items()]
        if topic.assignment:
            rows = [CreatableReplicaAssignment(index, list(row)) for index, row in enumerate(topic.assignment)]
            creatable = CreatableTopic(topic.name, -1, -1, rows, configs)
        else:
            creatable = CreatableTopic(topic.name, topic.partitions, topic.replicas, configs=configs)
        broker = next((node.node_id for node in self.nodes if node.is_broker and node.up), 1)
        try:
            response = await self._clients.ask(broker, CreateTopicsRequest([creatable], 2_000), timeout_ms=2_000)
        except NodeUnavailable as error:
            return str(error)
        result = response.topics[0]
        if result.error_code:
            return result.error_message or ErrorCode(result.error_code).name
        return ""

    # ----------------------------------------------------------------------------------------------------------- the end

    def _settled(self) -> bool:
        """Producers have all answers, every replica is in sync, and the leaders have committed everything."""
        if not all(producer.done for producer in self._producers):
            return False
        for partition in self.facts.partitions.values():
            leader = self._leader(partition)
            if (
                leader is None
                or len(leader.isr) < len(leader.replicas)
                or leader.high_watermark < leader.log.log_end_offset
            ):
                return False
        return True

    def _leader(self, partition: PartitionFacts) -> Partition | None:
        """The live replica that leads in the newest epoch."""
        term = partition.leaderships[-1] if partition.leaderships else None
        node: ScenarioNode | None = next((n for n in self.nodes if term is not None and n.node_id == term.leader), None)
        if term is None or node is None or node.replicas is None or partition.topic_id is None or node.paused:
            return None
        replica = node.replicas.by_id.get(partition.topic_id, {}).get(partition.where[1])
        return replica if replica is not None and replica.is_leader and replica.leader_epoch == term.epoch else None

    def _final_log(self, partition: PartitionFacts) -> FinalLog:
        replica = self._leader(partition)
        if replica is None:
            return FinalLog(leader=-1, start=0, end=0, compacted=False)
        log, stored = replica.log, []
        for header, data, position in batches(log, log.log_start_offset, log.log_end_offset):
            if not header.is_control:
                stored += [
                    StoredRecord(
                        offset=record.offset, epoch=header.leader_epoch, id=record_id_of(record.value), key=record.key
                    )
                    for record in iterate_records(data, position)
                ]
        leader = partition.leaderships[-1].leader
        return FinalLog(
            leader=leader, start=log.log_start_offset, end=log.log_end_offset, compacted=log.config.compact,
            records=tuple(stored),
        )  # fmt: skip
