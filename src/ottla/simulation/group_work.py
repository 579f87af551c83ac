"""The work around groups, each kind in a part of the seeds.

The kinds are members of consumer, classic and share groups, read-process-write, topics that grow, and hours that pass at
once. Topics are created again under all of them.

Topics: `m1` and `m2` for consumer and classic groups (`m2` is created again), `s1` for the share group, `p1` and `q1` for
read-process-write (`p1` is created again). Records for them are plain and acknowledged by all replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.records import SimpleRecord, build_batch, parse_header
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.classic_members import ClassicReader
from ottla.simulation.group_ledger import GroupLedger
from ottla.simulation.group_members import EpochReader
from ottla.simulation.group_reader import GroupWorld
from ottla.simulation.idle_group import IdleGroup
from ottla.simulation.processing import INPUT, OUTPUT, Processing
from ottla.simulation.records import ACKS_ALL, Promise, Records, produce_request
from ottla.simulation.share_ledger import ShareLedger
from ottla.simulation.share_members import SHARE_GROUP, ShareReader, read_from_the_start

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.replication.fetch_session import Key
    from ottla.simulation.clients import Clients
    from ottla.simulation.ledger import Ledger
    from ottla.simulation.replica_invariants import Truth

GROUP_TOPICS = ("m1", "m2")
SHARED_TOPIC = "s1"
CREATED_AGAIN = frozenset({"m2", INPUT})
MOST_PARTITIONS = 4
CALM_FROM_MS = 14_000.0
"""The faults of a seed end here: from now on members neither pause nor die."""
MEMBERS = 3
_START_S = 1.5
_HOURS_PASS_S = 0.6
_LAST_LOOK_S = 3.0
_PARTS = {"consumers": 0.35, "classic": 0.25, "share": 0.3, "processing": 0.3, "growth": 0.5, "hours": 0.4}
"""Each kind of work -> the part of the seeds that has it."""

Make = Callable[[str], Any]
"""Makes a member of this name."""


class GroupWork:
    def __init__(
        self,
        clients: Clients,
        records: Records,
        ledger: Ledger,
        truths: dict[Key, Truth],
        pass_hours: Callable[[], None],
    ) -> None:
        """`pass_hours` moves the clocks of all nodes."""
        self._clients = clients
        self._records = records
        self._ledger = ledger
        self._truths = truths
        self._pass_hours = pass_hours
        self._dice = _dice_of(clients.world.seed)
        self._world = GroupWorld(clients, records, truths, self._dice, self._is_calm)
        self.kinds: set[str] = set()
        self.topics: tuple[str, ...] = ()
        self.stopped = False
        self.acknowledged: dict[Key, list[int]] = {}
        """Partition -> the offsets of all acknowledged records."""
        self.groups: dict[str, GroupLedger] = {}
        self.shares = ShareLedger(SHARE_GROUP)
        self.processing = Processing(self._world, lambda: self.stopped)
        self.idle = IdleGroup(self._world)
        self.done: dict[str, int] = {}
        """How often each kind of work came to its end."""
        self._number = 0

    def start(self) -> None:
        self.kinds = _drawn_kinds(self._dice)
        kinds = self.kinds
        self.topics = (
            *(GROUP_TOPICS if kinds & {"consumers", "classic"} else ()),
            *((SHARED_TOPIC,) if "share" in kinds else ()),
            *((INPUT, OUTPUT) if "processing" in kinds else ()),
        )
        if self.topics:
            self._clients.spawn(self._repeat(self._keep_topics))
            self._clients.spawn(self._repeat(self._feed))
        if "consumers" in kinds:
            self._run("readers-by-epoch", self._consumer)
        if "classic" in kinds:
            self._run("readers-in-turn", self._classic)
        if "share" in kinds:
            self._clients.spawn(self._share())
        if "processing" in kinds:
            self.processing.start()
        if "growth" in kinds:
            self._clients.spawn(self._repeat(self._grow))
        if "hours" in kinds:
            self._clients.spawn(self.idle.commit(lambda: self.stopped))

    def _is_calm(self) -> bool:
        return self._clients.world.now_ms >= CALM_FROM_MS

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, float]]) -> None:
        """`work` returns the pause until it is due again, in seconds."""
        await asyncio.sleep(_START_S)
        while not self.stopped:
            pause_s = 0.2
            with contextlib.suppress(NodeUnavailable):
                pause_s = await work()
            await asyncio.sleep(pause_s)

    # --------------------------------------------------------------------------------------------------------- members

    def _run(self, group_id: str, make: Callable[[GroupLedger, str], Make]) -> None:
        ledger = self.groups[group_id] = GroupLedger(group_id)
        for slot in range(self._dice.randint(2, MEMBERS)):
            self._clients.spawn(self._slot(make(ledger, f"{group_id}-{slot}")))

    async def _slot(self, make: Make) -> None:
        """One process after the other."""
        await asyncio.sleep(_START_S + self._dice.uniform(0, 2))
        for life in range(1_000):
            await make(f".{life}").run()
            self._count("members")
            await asyncio.sleep(self._dice.uniform(0.1, 2.0))

    def _consumer(self, ledger: GroupLedger, slot: str) -> Make:
        instance_id = slot if self._dice.random() < 0.4 else None
        return lambda life: EpochReader(self._world, ledger, list(GROUP_TOPICS), slot + life, instance_id)

    def _classic(self, ledger: GroupLedger, slot: str) -> Make:
        return lambda life: ClassicReader(self._world, ledger, list(GROUP_TOPICS), slot + life)

    async def _share(self) -> None:
        await asyncio.sleep(_START_S)
        await read_from_the_start(self._world)
        for slot in range(self._dice.randint(2, MEMBERS)):
            name = f"{SHARE_GROUP}-{slot}"
            self._clients.spawn(self._slot(self._worker(name)))

    def _worker(self, slot: str) -> Make:
        return lambda life: ShareReader(self._world, self.shares, slot + life, SHARED_TOPIC)

    # ---------------------------------------------------------------------------------------------------------- admins

    async def _keep_topics(self) -> float:
        image = self._clients.image
        names = image.topics_by_name if image is not None else {}
        for name in self.topics:
            if name not in names:
                await self._ask_any(CreateTopicsRequest([_topic(name, self._dice.randint(1, 2))]), 7)
                return 0.3
        doomed = sorted(CREATED_AGAIN & set(self.topics))
        if doomed and not self._is_calm() and self._dice.random() < 0.25:
            topic = names[self._dice.choice(doomed)]
            await self._ask_any(DeleteTopicsRequest([DeleteTopicState(None, topic.id)]), 6)
            self._count("created again")
        return self._dice.uniform(0.5, 2.0)

    async def _grow(self) -> float:
        """Any topic, also those of other work."""
        image = self._clients.image
        topics = [t for t in image.topics_by_id.values() if not t.name.startswith("__")] if image is not None else []
        small = [
            t
            for t in topics
            if len(t.partitions) < MOST_PARTITIONS and (t.name in self.topics or len(t.partitions) < 2)
        ]
        if small and self._clients.world.now_ms < CALM_FROM_MS + 2_000:
            topic = self._dice.choice(small)
            request = CreatePartitionsTopic(topic.name, len(topic.partitions) + 1)
            response = await self._ask_any(CreatePartitionsRequest([request], 3_000), 3)
            if not response.results[0].error_code:
                self._count("grown")
        return self._dice.uniform(1, 4)

    async def _ask_any(self, request: Any, version: int) -> Any:
        return await self._clients.ask(self._dice.choice(self._clients.brokers()), request, version=version)

    async def _feed(self) -> float:
        """One batch of one or two records for one partition."""
        keys = self._world.keys([name for name in self.topics if name != OUTPUT])
        key = self._dice.choice(keys) if keys else None
        leader = self._records.leader(key) if key is not None else None
        if key is not None and leader is not None:
            count = self._dice.choice([1, 1, 2])
            self._number += 1
            now_ms = self._clients.time_ms()
            values = [b"m%d/%d" % (self._number, index) for index in range(count)]
            batch = bytes(build_batch([SimpleRecord(now_ms, None, value) for value in values]))
            crc = parse_header(batch, 0).crc
            self._ledger.sent[crc] = key
            response = await self._clients.ask(leader, produce_request(key, batch, ACKS_ALL))
            result = response.responses[0].partition_responses[0]
            if not result.error_code:
                self._records.acknowledged(Promise(key, result.base_offset, crc))
                self.acknowledged.setdefault(key, []).extend(range(result.base_offset, result.base_offset + count))
                self._count("group records")
        return self._dice.uniform(0.05, 0.25)

    # --------------------------------------------------------------------------------------------------------- the end

    def end(self) -> None:
        """No records and no changes any more: members read what there is."""
        self.stopped = True
        if "hours" in self.kinds:
            self._clients.spawn(self._later(_HOURS_PASS_S))
            self._clients.spawn(self.idle.look(_LAST_LOOK_S))
        for ledger in self.groups.values():
            self._clients.spawn(self.idle.look_at(ledger, self._world.keys(GROUP_TOPICS), _LAST_LOOK_S))
        if "processing" in self.kinds:
            self._clients.spawn(self.processing.finish())

    async def _later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._pass_hours()

    def judge(self, image: MetadataImage) -> None:
        for ledger in self.groups.values():
            ledger.void = ledger.void or self._world.is_void(ledger.group_id)
            self.idle.judge(ledger)
            ledger.any_commit()
            for key in self._sound(image, GROUP_TOPICS):
                ledger.one_reader(key)
                ledger.all_read(key, self.acknowledged.get(key, ()))
        if "share" in self.kinds:
            for key in self._sound(image, (SHARED_TOPIC,)):
                self.shares.all_settled(key, self.acknowledged.get(key, ()))
        if "processing" in self.kinds:
            self.processing.judge()
        if "hours" in self.kinds:
            self.idle.judge_expiry()

    def _sound(self, image: MetadataImage, names: tuple[str, ...]) -> list[Key]:
        """Partitions that have lost nothing."""
        topics = [image.topics_by_name[name] for name in names if name in image.topics_by_name]
        keys = [(topic.id, index) for topic in topics for index in topic.partitions]
        return [key for key in keys if key not in self._truths or not self._truths[key].unclean]


def _dice_of(seed: int) -> random.Random:
    return random.Random(seed * 41 + 3)  # noqa: S311 - a simulation must be repeatable


def _drawn_kinds(dice: random.Random) -> set[str]:
    return {kind for kind, part in _PARTS.items() if dice.random() < part}


def _topic(name: str, partitions: int) -> CreatableTopic:
    configs = {"min.insync.replicas": "2", "internal.segment.bytes": "4000"}
    rows = [CreatableTopicConfig(key, value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, 3, configs=rows)
