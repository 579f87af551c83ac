"""The table of everything that a scenario may contain. The reader, the writer and docs/simulate.md follow this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ottla.simulation.scenario import plan, values
from ottla.simulation.scenario.values import ScenarioKey, boolean, choice, duration, name, text, whole_number

ISOLATIONS = ("read_uncommitted", "read_committed")
RESETS = ("earliest", "latest")
_SECOND_MS = 1_000.0
_LATEST_MS = plan.HOUR_MS

RUN = (
    ScenarioKey(name="seed", field="seed", read=whole_number(0, plan.MAX_SEED), accepts="a whole number", default="1",
        doc="Decides every delay and every draw; `--seed` overrides the key."),
    ScenarioKey(name="duration", field="duration_ms", read=duration(_SECOND_MS, plan.HOUR_MS), accepts="a time up to 1h",
        default="30s", doc="Virtual time until producers end and faults are healed."),
    ScenarioKey(name="heal", field="heal", read=boolean, accepts="true or false", default="true",
        doc="Start all nodes and mend all links and disks after the duration, before the verdict."),
    ScenarioKey(name="settle", field="settle_ms", read=duration(0.0, plan.HOUR_MS), accepts="a time up to 1h", default="2m",
        doc="Longest time that the cluster gets to recover before the verdict."),
)  # fmt: skip
CLUSTER = (
    ScenarioKey(name="brokers", field="brokers", read=whole_number(1, plan.MAX_BROKERS), accepts="1 to 7", default="3",
        doc="Number of brokers; their ids are 1, 2, 3."),
    ScenarioKey(name="controllers", field="controllers", read=whole_number(1, plan.MAX_CONTROLLERS), accepts="1 to 5",
        default="1", doc="Number of controllers; their ids are 101, 102, 103."),
    ScenarioKey(name="racks", field="racks", read=values.names, accepts="a list of names", default="none",
        doc="Racks of the brokers, in turn."),
    ScenarioKey(name="delay", field="delay_ms", read=duration(0.05, 1_000.0), accepts="a time up to 1s", default="0.5ms",
        doc="Mean time of a message from host to host; a message needs between 20 % and 180 % of this time."),
)  # fmt: skip
TOPIC = (
    ScenarioKey(name="name", field="name", read=name, accepts="a name", required=True, doc="Name of the topic."),
    ScenarioKey(name="partitions", field="partitions", read=whole_number(1, plan.MAX_PARTITIONS), accepts="1 to 60",
        default="1", doc="Number of partitions; all topics together have at most 60."),
    ScenarioKey(name="replicas", field="replicas", read=values.replicas, accepts="a number, or a list for each partition",
        default="3", doc="Replicas of each partition, or the brokers of each partition, the preferred leader first."),
)  # fmt: skip
PRODUCER = (
    ScenarioKey(name="topic", field="topic", read=name, accepts="a topic", required=True, doc="Topic of the records."),
    ScenarioKey(name="name", field="name", read=name, accepts="a name", default="producer-1", doc="Name in the output."),
    ScenarioKey(name="acks", field="acks", read=values.acks, accepts='0, 1 or "all"', default='"all"',
        doc="Acknowledgement that the producer waits for."),
    ScenarioKey(name="idempotence", field="idempotence", read=boolean, accepts="true or false",
        default='true with acks="all"', doc="Sequence numbers, so that the log refuses a repeated batch."),
    ScenarioKey(name="retries", field="retries", read=whole_number(0, 2_147_483_647), accepts="a whole number",
        default="2147483647", doc="How often a batch is sent again after an error."),
    ScenarioKey(name="in_flight", field="in_flight", read=whole_number(1, 100), accepts="1 to 100", default="5",
        doc="Batches under way on a connection (max.in.flight.requests.per.connection)."),
    ScenarioKey(name="rate", field="rate", read=whole_number(1, 10_000), accepts="records per second", default="100",
        doc="Records per second of virtual time."),
    ScenarioKey(name="count", field="count", read=whole_number(1, plan.MAX_RECORDS), accepts="1 to 100000", default="1000",
        doc="Number of records; all producers together send at most 100,000."),
    ScenarioKey(name="keys", field="keys", read=whole_number(0, plan.MAX_RECORDS), accepts="a whole number", default="0",
        doc="Number of different keys, used in turn; with 0 records have no key and go to the partitions in turn."),
    ScenarioKey(name="record_bytes", field="record_bytes", read=whole_number(32, plan.MAX_RECORD_BYTES),
        accepts="32 to 10000", default="100", doc="Bytes of each value."),
    ScenarioKey(name="start", field="start_ms", read=duration(plan.READY_MS, _LATEST_MS), accepts="a time from 1s on",
        default="1s", doc="When the producer begins."),
    ScenarioKey(name="request_timeout", field="request_timeout_ms", read=duration(100.0, _LATEST_MS), accepts="a time",
        default="30s", doc="How long the producer waits for an answer (request.timeout.ms)."),
    ScenarioKey(name="delivery_timeout", field="delivery_timeout_ms", read=duration(100.0, _LATEST_MS), accepts="a time",
        default="2m", doc="When the producer gives a record up (delivery.timeout.ms)."),
)  # fmt: skip
CONSUMER = (
    ScenarioKey(name="topic", field="topic", read=name, accepts="a topic", required=True, doc="Topic that is read."),
    ScenarioKey(name="name", field="name", read=name, accepts="a name", default="consumer-1", doc="Name in the output."),
    ScenarioKey(name="group", field="group", read=name, accepts="a name", default="none",
        doc="Consumer group (KIP-848); without a group the consumer reads every partition."),
    ScenarioKey(name="members", field="members", read=whole_number(1, 10), accepts="1 to 10", default="1",
        doc="Members of the group."),
    ScenarioKey(name="isolation", field="isolation", read=choice(ISOLATIONS), accepts="read_uncommitted or read_committed",
        default='"read_uncommitted"', doc="isolation.level of the consumer."),
    ScenarioKey(name="reset", field="reset", read=choice(RESETS), accepts="earliest or latest", default='"earliest"',
        doc="Where the consumer begins without a committed offset (auto.offset.reset)."),
    ScenarioKey(name="commit_interval", field="commit_ms", read=duration(100.0, _LATEST_MS), accepts="a time", default="5s",
        doc="Time between two commits of offsets of a group (auto.commit.interval.ms)."),
    ScenarioKey(name="start", field="start_ms", read=duration(plan.READY_MS, _LATEST_MS), accepts="a time from 1s on",
        default="1s", doc="When the consumer begins."),
)  # fmt: skip
FAULT = (
    ScenarioKey(name="at", field="at_ms", read=duration(0.0, _LATEST_MS), accepts="a time", required=True,
        doc="When the fault happens."),
    ScenarioKey(name="kind", field="kind", read=text, accepts="a kind of the next table", required=True, doc="What happens."),
    ScenarioKey(name="target", field="target", read=text, accepts="nodes or a partition", default="none",
        doc="Where the fault happens: a node or a partition, as above."),
    ScenarioKey(name="peer", field="peer", read=text, accepts="nodes", default="none", doc="The other side of a partition."),
    ScenarioKey(name="for", field="for_ms", read=duration(1.0, _LATEST_MS), accepts="a time", default="until a later fault",
        doc="The fault ends by itself after this time."),
    ScenarioKey(name="name", field="name", read=name, accepts="a name", default="none",
        doc='A later fault names the same nodes as `target = "same as NAME"`.'),
    ScenarioKey(name="delay", field="delay_ms", read=duration(1.0, 60_000.0), accepts="a time up to 1m", default="none",
        doc="Additional time of each message or sync."),
    ScenarioKey(name="by", field="by_ms", read=duration(1.0, 24 * _LATEST_MS, signed=True), accepts='"+5s" or "-1m"',
        default="none", doc="How far the wall clock jumps."),
    ScenarioKey(name="one_way", field="one_way", read=boolean, accepts="true or false", default="false",
        doc="Only messages from the target to the peer are held back."),
    ScenarioKey(name="clients", field="clients", read=boolean, accepts="true or false", default="true",
        doc="Whether clients lose the isolated nodes, too."),
)  # fmt: skip

SECTIONS: Mapping[str, tuple[ScenarioKey, ...]] = MappingProxyType(
    {"run": RUN, "cluster": CLUSTER, "topic": TOPIC, "producer": PRODUCER, "consumer": CONSUMER, "fault": FAULT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    doc: str
    target: str = "nodes"
    """nodes, brokers, partition, or optional (all nodes)."""
    needs: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    undo: str = ""
    """The kind that ends this fault."""


KINDS: Mapping[str, FaultKind] = MappingProxyType(
    {
        "kill": FaultKind(doc="The process dies; bytes that were written stay.", allows=("for",), undo="start"),
        "stop": FaultKind(doc="A clean shutdown, as after SIGTERM.", allows=("for",), undo="start"),
        "start": FaultKind(doc="A node that is down starts again.", target="optional"),
        "power_cut": FaultKind(
            doc="The host loses its power; bytes that were not synced are lost, torn or damaged.",
            allows=("for",), undo="start",
        ),
        "wipe_disk": FaultKind(
            doc="The node dies, and its disk is replaced by an empty disk.",
            target="brokers", allows=("for",), undo="start",
        ),
        "pause": FaultKind(doc="The process stands still, as after SIGSTOP.", allows=("for",), undo="resume"),
        "resume": FaultKind(doc="A paused process goes on.", target="optional"),
        "isolate": FaultKind(
            doc="Messages between the target and all other nodes are held back.",
            allows=("for", "clients"), undo="heal",
        ),
        "partition": FaultKind(
            doc="Messages between target and peer are held back.",
            needs=("peer",), allows=("for", "one_way"), undo="heal",
        ),
        "heal": FaultKind(doc="The links of the target work again, at full speed.", target="optional"),
        "slow_network": FaultKind(
            doc="Each message from and to the target needs `delay` longer.",
            needs=("delay",), allows=("for",), undo="heal",
        ),
        "full_disk": FaultKind(doc="No write to the disk succeeds.", allows=("for",), undo="mend_disk"),
        "failing_disk": FaultKind(doc="No sync of the disk succeeds.", allows=("for",), undo="mend_disk"),
        "slow_disk": FaultKind(
            doc="Each sync of the disk needs `delay` longer.", needs=("delay",), allows=("for",), undo="mend_disk"
        ),
        "mend_disk": FaultKind(doc="The disk works again.", target="optional"),
        "clock_jump": FaultKind(doc="The wall clock of the target jumps.", needs=("by",)),
        "preferred_election": FaultKind(
            doc="An administrator asks for the preferred leader of a partition.", target="partition"
        ),
        "unclean_election": FaultKind(
            doc="An administrator asks for any live replica of a partition without a leader to lead.",
            target="partition",
        ),
    }
)  # fmt: skip
COMMON = ("at", "kind", "target", "name")
