"""Brokers with real logs and real handlers in a process, a real controller's decisions, a fake network and fake time.

A node may be cut off, crash (its files stay, its memory is lost) and start again; its metadata lags by a random delay.
The controller does not fail here: tests/quorum and tests/simulation cover that.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.fetch.sessions import FetchSessions
from ottla.broker.handlers import delete_records, fetch, list_offsets, produce
from ottla.controller.brokers import fence_stale_brokers
from ottla.controller.config_rules import ConfigRules
from ottla.controller.controller import Controller
from ottla.controller.state import ControllerRequestContext, ControllerSettings, ControllerState
from ottla.env.config.load import load
from ottla.env.config.overrides import resolve_topic_config
from ottla.log.log_store import LogStore
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import FeatureLevelRecord
from ottla.metadata.replay import replay_all
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition, new_uuid
from ottla.protocol.generated import broker_registration_request as registration
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.replication.context import ReplicaContext
from ottla.replication.directories import DirectoryAssignments
from ottla.replication.fetcher import FetcherSettings, ReplicaFetcher
from ottla.replication.fetchers import Fetchers
from ottla.replication.proposals import IsrProposals
from ottla.replication.replicas import Replicas
from ottla.runtime.disk import DiskStorage
from tests.coordinator.virtual_world import SeededRandom, VirtualTime
from tests.log.removed import carried_out

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
HEARTBEAT_MS = 2_000


class VirtualCluster:
    def __init__(
        self, directory: Path, *, nodes: int = 3, seed: int = 0, racks: bool = False, log_dirs: int = 1
    ) -> None:
        """With several `log_dirs` the nodes report their directories to the controller and continue moves."""
        self.log_dirs = log_dirs
        self.time = VirtualTime()
        self.random = random.Random(seed)
        self.cut: set[int] = set()
        self.config = load(
            {
                "process.roles": "broker,controller",
                "node.id": "100",
                "controller.quorum.voters": "100@127.0.0.1:9093",
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(directory / "unused"),
                "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            }
        )
        self.records: list[Any] = []
        seeded = SeededRandom(seed)
        self.state = ControllerState(
            settings=ControllerSettings(cluster_id=CLUSTER_ID, node_id=100),
            rules=ConfigRules(self.config),
            quorum=SimpleNamespace(end_offset=0),
            clock=self.time,
            random=seeded,
        )
        self.controller = Controller(self.state)
        self.append([FeatureLevelRecord("metadata.version", SUPPORTED_FEATURES["metadata.version"].high)])
        self.append([FeatureLevelRecord("eligible.leader.replicas.version", 1)])
        self.nodes = {
            i: VirtualNode(self, i, directory / str(i), f"rack{i}" if racks else None) for i in range(1, nodes + 1)
        }
        for node in self.nodes.values():
            node.start()
        self.time.call_later(100, self._tick)

    def append(self, records: list[Any]) -> None:
        replay_all(self.state.image, MetadataDelta(), records)
        self.records += records
        self.state.quorum.end_offset = len(self.records)

    def submit(self, request: Any) -> Any:
        decision = self.controller.decide(request, ControllerRequestContext(version=type(request).MAX_VERSION))
        self.append(decision.records)
        return decision.response

    def _tick(self) -> None:
        self.append(fence_stale_brokers(self.state))
        self.time.call_later(100, self._tick)

    def create_topic(self, name: str, partitions: int = 1, factor: int = 3, **configs: str) -> None:
        topic = CreatableTopic(name, partitions, factor)
        topic.configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        response = self.submit(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == 0, response.topics[0].error_message

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.state.image.topics_by_name[topic].partitions[partition].leader

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        return set(self.state.image.topics_by_name[topic].partitions[partition].isr)

    def reachable(self, a: int, b: int) -> bool:
        return a not in self.cut and b not in self.cut and all(not self.nodes[i].down for i in (a, b))

    def run_until(self, condition: Any, limit_ms: float = 60_000) -> None:
        end = self.time.now + limit_ms
        while not condition():
            assert self.time.now < end, "not within the time"
            self.time.advance(10)


class VirtualNode:
    def __init__(self, cluster: VirtualCluster, node_id: int, directory: Path, rack: str | None) -> None:
        self.cluster = cluster
        self.id = node_id
        self.rack = rack
        self.directory = directory
        self.paths = (
            [str(directory / str(n)) for n in range(cluster.log_dirs)] if cluster.log_dirs > 1 else [str(directory)]
        )
        identities = SeededRandom(node_id)
        self.directory_ids = {path: new_uuid(identities.token_bytes) for path in self.paths}
        self.storage: Any = DiskStorage()
        self.assigned: list[Any] = []
        """AssignReplicasToDirs requests that went out."""
        self.down = True
        self.generation = 0

    def start(self) -> None:
        cluster = self.cluster
        self.generation += 1
        self.down = False
        self.publisher = MetadataPublisher()
        self.position = 0
        names = SeededRandom(self.id if cluster.log_dirs == 1 else self.id * 1000 + self.generation)
        self.logs = LogStore(
            self.storage, names, self.paths, on_directory_failed=lambda _, partitions: self._failed(partitions)
        )
        self.logs.open_directories(self.directory_ids)
        self.previous_epoch = self.logs.previous_broker_epoch
        self.context = ReplicaContext(self.id, cluster.time)
        fetchers = Fetchers(self.context, FetcherSettings())
        self.replicas = Replicas(
            self.id, self.logs, cluster.time, self._topic_config, context=self.context, fetchers=fetchers
        )
        proposals = IsrProposals(self.context, self._timers(), self._send_proposals)
        self.context.propose = proposals.propose
        fetchers.on_changed = self._on_changed
        self.fetching: set[int] = set()
        self.broker = SimpleNamespace(
            node_id=self.id,
            clock=cluster.time,
            timers=self._timers(),
            config=cluster.config,
            replicas=self.replicas,
            fetch_sessions=FetchSessions(1000, cluster.time, SeededRandom(self.id)),
            leader_throttle=None,
            authorizer=None,
            metrics=None,
            schemas=None,
            record_workers=None,
            image=self.publisher.image,
        )
        if cluster.log_dirs == 1:
            self.logs.load(self._topic_config, cluster.time.time_ms())
            self._catch_up_now()
        else:
            self.replicas.directories = DirectoryAssignments(self.context, self._timers(), self._send_assignments)
            self._catch_up_now()
            self.replicas.load(self.publisher.image)
            self._later(10, self._move)
        self.publisher.subscribe(self.replicas.on_metadata)
        self._later(0, self._register)
        self._later(1, self._follow_metadata)
        self._later(15_000, self._shrink)

    def _failed(self, partitions: list[TopicPartition]) -> None:
        self.replicas.on_directory_failed(partitions)
        self._later(0, self._heartbeat_once)

    def _move(self) -> None:
        self.replicas.moves.advance(200)
        carried_out(self.logs.removals(self.cluster.time.time_ms()))
        self._later(self.cluster.random.choice([10, 10, 10, 2_000]), self._move)

    def _send_assignments(self, request: Any, done: Any) -> None:
        self.assigned.append(request)
        self._send_proposals(request, done)

    def crash(self) -> None:
        """End the process; its files stay."""
        self.down = True
        self.generation += 1
        self.logs.abandon()

    # Everything that a node does later is done only by the same incarnation.

    def _later(self, delay_ms: float, call: Any) -> Any:
        generation = self.generation
        return self.cluster.time.call_later(delay_ms, lambda: call() if generation == self.generation else None)

    def _timers(self) -> Any:
        return SimpleNamespace(call_soon=lambda call: self._later(0, call), call_later=self._later)

    def _topic_config(self, topic: str) -> Any:
        return resolve_topic_config(self.publisher.image.topic_config(topic), self.cluster.config)

    # Broker and controller

    def _catch_up_now(self) -> None:
        new = self.cluster.records[self.position :]
        if new:
            self.position += len(new)
            self.publisher.committed(new, self.position - 1, 1)

    def _follow_metadata(self) -> None:
        if self.id not in self.cluster.cut:
            self._catch_up_now()
        self._later(self.cluster.random.uniform(1, 30), self._follow_metadata)

    def _register(self) -> None:
        request = registration.BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=new_uuid(SeededRandom(self.id * 1000 + self.generation).token_bytes),
            listeners=[registration.Listener("PLAINTEXT", "127.0.0.1", 9000 + self.id, 0)],
            features=[registration.Feature(n, low, high) for n, (low, high) in SUPPORTED_FEATURES.items()],
            rack=self.rack,
            log_dirs=[d.directory_id for d in self.logs.directories if not d.offline],
            previous_broker_epoch=self.previous_epoch,
        )
        if self.id not in self.cluster.cut:
            response = self.cluster.submit(request)
            if not response.error_code:
                self.context.broker_epoch = response.broker_epoch
                self._heartbeat()
                return
        self._later(500, self._register)

    def _heartbeat(self) -> None:
        self._heartbeat_once()
        broker = self.publisher.image.brokers.get(self.id)
        self._later(50 if broker is None or broker.fenced else HEARTBEAT_MS, self._heartbeat)

    def _heartbeat_once(self) -> None:
        if self.id not in self.cluster.cut:
            request = BrokerHeartbeatRequest(self.id, self.context.broker_epoch, self.publisher.offset)
            request.offline_log_dirs = [d.directory_id for d in self.logs.directories if d.offline]
            self.cluster.submit(request)

    def _send_proposals(self, request: Any, done: Any) -> None:
        def arrive() -> None:
            if self.id in self.cluster.cut:
                self._later(50, lambda: done(None))
                return
            response = self.cluster.submit(request)
            lost = self.cluster.random.random() < 0.1
            self._later(self.cluster.random.uniform(1, 20), lambda: done(None if lost else response))

        self._later(self.cluster.random.uniform(1, 20), arrive)

    def _shrink(self) -> None:
        self.replicas.shrink_isrs()
        self._later(15_000, self._shrink)

    # Following

    def _on_changed(self, source: int) -> None:
        if source not in self.fetching:
            self.fetching.add(source)
            self._later(0, lambda: self._fetch(self.replicas.fetchers.by_source[source]))

    def _fetch(self, fetcher: ReplicaFetcher) -> None:
        request = fetcher.request()
        source = self.cluster.nodes[fetcher.source_id]
        if request is None:
            self._later(min(max(fetcher.rest_ms(), 5), 50), lambda: self._fetch(fetcher))
            return
        generation, source_generation = self.generation, source.generation

        def failed() -> None:
            fetcher.on_failure()
            self._fetch(fetcher)

        def arrive() -> None:
            if not self.cluster.reachable(self.id, source.id) or source.generation != source_generation:
                self._later(10, failed)
                return
            answer = source.handle(fetch, request)

            def answered(response: Any) -> None:
                self._later(self.cluster.random.uniform(0.1, 5), lambda: back(response))

            if isinstance(answer, Deferred):
                answer.then(answered)
                source.crashed_before(answer, lambda: self._later(10, failed))
            else:
                answered(answer)

        def back(response: Any) -> None:
            if generation != self.generation:
                return
            if not self.cluster.reachable(self.id, source.id):
                failed()
                return
            fetcher.on_response(response)
            for followed in fetcher.out_of_range():
                tp = followed.partition.topic_partition
                offsets = [
                    source.offset(self.id, tp, followed.leader_epoch, timestamp) if not source.down else -1
                    for timestamp in (-2, -1)
                ]
                fetcher.on_offsets(followed, *offsets)
            self._fetch(fetcher)

        self._later(self.cluster.random.uniform(0.1, 5), arrive)

    def crashed_before(self, answer: Deferred, callback: Any) -> None:
        """A parked request dies with its server."""
        generation = self.generation

        def look() -> None:
            if answer.done:
                return
            if self.generation != generation:
                callback()
            else:
                self.cluster.time.call_later(50, look)

        look()

    def offset(self, asker: int, tp: TopicPartition, epoch: int, timestamp: int) -> int:
        item = ListOffsetsPartition(tp.partition, epoch, timestamp)
        request = ListOffsetsRequest(replica_id=asker, topics=[ListOffsetsTopic(tp.topic, [item])])
        return self.handle(list_offsets, request).topics[0].partitions[0].offset

    # Requests

    def handle(self, handler: Any, request: Any, version: int | None = None) -> Any:
        self.broker.image = self.publisher.image
        context = RequestContext(
            self.broker,
            SimpleNamespace(listener="PLAINTEXT", principal="User:ANONYMOUS", client_host="127.0.0.1"),
            request.API_KEY,
            request.MAX_VERSION if version is None else version,
            "test",
        )
        try:
            answer = handler.handle(context, request)
        except KafkaError as error:
            answer = _failure(request, error)
        if isinstance(answer, Deferred):
            plain = Deferred(answer.cancel)
            answer.then(lambda response: plain.resolve(_materialized(response)))
            return plain
        return _materialized(answer)

    def produce(self, topic: str, value: bytes, *, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000) -> Any:
        topic_id = self.publisher.image.topics_by_name[topic].id
        batch = bytearray(build_batch([SimpleRecord(self.cluster.time.time_ms(), None, value)]))
        data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(partition, memoryview(batch))])
        return self.handle(produce, ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data]))

    def delete_records(self, topic: str, offset: int) -> Any:
        from ottla.protocol.generated.delete_records_request import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        delete_topic = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])
        return self.handle(delete_records, DeleteRecordsRequest(topics=[delete_topic], timeout_ms=10_000))

    def bytes_below(self, topic: str, offset: int, partition: int = 0) -> bytes:
        log = self.replicas.get(topic, partition).log
        out = b""
        at = log.log_start_offset
        while at < offset:
            piece = log.read(at, 1 << 20, max_offset=offset)
            if not piece.length:
                break
            data = piece.read()
            out += data
            at = log.log_end_offset if len(data) == 0 else _end_of(data)
        return out


def _end_of(data: bytes) -> int:
    pos, end = 0, 0
    while pos < len(data):
        length = int.from_bytes(data[pos + 8 : pos + 12], "big") + 12
        base = int.from_bytes(data[pos : pos + 8], "big")
        end = base + int.from_bytes(data[pos + 23 : pos + 27], "big") + 1
        pos += length
    return end


def _failure(request: Any, error: KafkaError) -> Any:
    from ottla.protocol.api import response_class

    response = response_class(request.API_KEY)()
    response.error_code = int(error.code)
    return response


def _materialized(response: Any) -> Any:
    """File slices as the bytes that they are at this moment, as the wire would carry them."""
    for topic in getattr(response, "responses", ()):
        for data in getattr(topic, "partitions", ()):
            if hasattr(data, "records") and data.records:
                data.records = bytes(data.records) if not hasattr(data.records, "read") else data.records.read()
    return response
