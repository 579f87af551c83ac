"""A group coordinator with virtual time, an in-memory partition and a seeded source of ids."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.env.config.topic import TopicConfig
from ottla.log.results import AppendResult
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import RESOURCE_GROUP, ConfigResource, MetadataImage, PartitionRegistration, TopicImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.model.topic_names import OFFSETS_TOPIC
from ottla.protocol.records import assign_offset, parse_header

START_MS = 1_700_000_000_000


class VirtualTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualTime:
    """Clock and timers in one: time passes only in `advance`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, VirtualTimer, Callable[[], None]]] = []
        self._order = itertools.count()

    def time_ms(self) -> int:
        return START_MS + int(self.now)

    def monotonic_ms(self) -> float:
        return self.now

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer()
        heapq.heappush(self._queue, (self.now + max(delay_ms, 0), next(self._order), timer, callback))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def advance(self, delay_ms: float) -> None:
        end = self.now + delay_ms
        while self._queue and self._queue[0][0] <= end:
            at, _, timer, callback = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            if not timer.cancelled:
                callback()
        self.now = end

    def turn(self) -> None:
        """What is due now, without what that schedules: one turn of an event loop."""
        due = [entry for entry in self._queue if entry[0] <= self.now]
        self._queue = [entry for entry in self._queue if entry[0] > self.now]
        heapq.heapify(self._queue)
        for _, _, timer, callback in sorted(due, key=lambda entry: entry[:2]):
            if not timer.cancelled:
                callback()


class SeededRandom:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token_bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class Slice:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data


class MemoryLog:
    def __init__(self) -> None:
        self.config = TopicConfig()
        self.batches: list[tuple[int, int, bytes]] = []
        self.log_start_offset = 0
        self.log_end_offset = 0

    def read(self, offset: int, max_bytes: int) -> Slice:
        data = b""
        for _, last, batch in self.batches:
            if last >= offset and (not data or len(data) + len(batch) <= max_bytes):
                data += batch
            elif data:
                break
        return Slice(data)


class MemoryPartition:
    """One replica: an append is committed at once, unless the test holds commits back."""

    def __init__(self, index: int, log: MemoryLog, leader_epoch: int) -> None:
        self.topic_partition = TopicPartition(OFFSETS_TOPIC, index)
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_leader = True
        self.high_watermark = log.log_end_offset
        self.hold_commits = False
        self.failure: KafkaError | None = None
        self.refusals = 0
        self._waiters: list[tuple[int, Callable[[], None]]] = []

    def append_internal(
        self, batch: bytearray, *, now_ms: int, verification_guard: object = None, transaction_version: int = 0
    ) -> AppendResult:
        if self.failure is not None:
            self.refusals += 1
            raise self.failure
        if len(batch) > self.log.config.max_message_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        first = self.log.log_end_offset
        assign_offset(batch, 0, first, self.leader_epoch)
        last = first + parse_header(batch, 0).last_offset_delta
        self.log.batches.append((first, last, bytes(batch)))
        self.log.log_end_offset = last + 1
        if not self.hold_commits:
            self.commit()
        return AppendResult(first, last, -1, now_ms, len(batch), duplicate=False, flush_due=False)

    def when_high_watermark(self, offset: int, callback: Callable[[], None]) -> None:
        if self.high_watermark >= offset:
            callback()
        else:
            self._waiters.append((offset, callback))

    def commit(self) -> None:
        self.high_watermark = self.log.log_end_offset
        waiters, self._waiters = self._waiters, []
        for offset, callback in waiters:
            self.when_high_watermark(offset, callback)


class MemoryReplicas:
    def __init__(self) -> None:
        self.by_name: dict[str, dict[int, Any]] = {}


class World:
    """One node that leads `partitions` partitions of the offsets topic."""

    def __init__(self, settings: GroupCoordinatorSettings | None = None, *, partitions: int = 1, seed: int = 0) -> None:
        self.settings = settings or GroupCoordinatorSettings(
            group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1
        )
        self.time = VirtualTime()
        self.random = SeededRandom(seed)
        self.logs = [MemoryLog() for _ in range(partitions)]
        self.epoch = 0
        self.topics: dict[str, TopicImage] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self._topics_made = 0
        self._version = 0
        self.replicas = MemoryReplicas()
        self.coordinator = self._coordinator()
        self.elect()

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self.time, self.random, self.time, self.replicas)  # type: ignore[arg-type]

    def elect(self) -> None:
        """Become leader (again): every shard is loaded from its log."""
        self.epoch += 1
        self.replicas.by_name[OFFSETS_TOPIC] = {
            index: MemoryPartition(index, log, self.epoch) for index, log in enumerate(self.logs)
        }
        self._publish()

    def resign(self) -> None:
        for partition in self.replicas.by_name[OFFSETS_TOPIC].values():
            partition.is_leader = False
        self._publish()

    def restart(self) -> None:
        """A new process over the same log; waiting requests have lost their connection."""
        self.time._queue.clear()
        self.coordinator = self._coordinator()
        self.elect()

    def partition(self, index: int = 0) -> MemoryPartition:
        partition: MemoryPartition = self.replicas.by_name[OFFSETS_TOPIC][index]
        return partition

    def machine(self, index: int = 0) -> Any:
        return self.coordinator.shards[index].machine

    def set_topic(self, name: str, partitions: int) -> Uuid:
        """Make the topic, or give it more partitions."""
        created = name not in self.topics
        topic = self.topics.setdefault(name, TopicImage(name, self._topic_id(name)))
        added = range(len(topic.partitions), partitions)
        registration = PartitionRegistration((1,), (1,), 1, 0, 0)
        topic.partitions |= dict.fromkeys(added, registration)
        delta = MetadataDelta(partitions={topic.id: set(added)})
        if created:
            delta.topics_created.add(topic.id)
        self._publish(delta)
        return topic.id

    def drop_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self._publish(MetadataDelta(topics_deleted={topic.id: topic}))

    def configure_group(self, group: str, **settings: str) -> None:
        self.configs[RESOURCE_GROUP, group] = {key.replace("_", "."): value for key, value in settings.items()}
        self._publish(MetadataDelta(configs={(RESOURCE_GROUP, group)}))

    def _topic_id(self, name: str) -> Uuid:
        self._topics_made += 1
        return Uuid(f"{name[:8]:-<8}{self._topics_made:08}".encode())

    def _publish(self, delta: MetadataDelta | None = None) -> None:
        registration = PartitionRegistration((1,), (1,), 1, self.epoch, self.epoch)
        topic = TopicImage(OFFSETS_TOPIC, Uuid(b"offsets-topic-id"), dict.fromkeys(range(len(self.logs)), registration))
        topics = [topic, *self.topics.values()]
        image = MetadataImage(
            topics_by_id={topic_image.id: topic_image for topic_image in topics},
            topics_by_name={topic_image.name: topic_image for topic_image in topics},
            configs=dict(self.configs),
        )
        self._version += 1
        self.coordinator.on_metadata(delta or MetadataDelta(reloaded=True), image, self._version)
