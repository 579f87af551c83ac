"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from ottla.protocol.generated import alter_configs_request as old
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.list_config_resources_request import ListConfigResourcesRequest
from tests.interop.differential.pair import Pair
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.topics import CONFIGS

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@scenario(DescribeConfigsRequest)
def describe_configs(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 1, retention_ms="7000", cleanup_policy="compact")
    resources = (
        (TOPIC, topic), (TOPIC, pair.name("missing")), (TOPIC, ""), (TOPIC, "a b"), (BROKER, "1"), (BROKER, ""), (BROKER, "9"),
        (BROKER, "x"), (BROKER, "-1"), (GROUP, pair.name("g")), (GROUP, ""), (CLIENT_METRICS, pair.name("c")), (CLIENT_METRICS, ""),
        (BROKER_LOGGER, "9"), (BROKER_LOGGER, ""), (99, "x"), (0, "x"),
    )  # fmt: skip
    for kind, name in resources:
        for keys in (None, ["retention.ms", "log.retention.ms", "consumer.session.timeout.ms", "no.such"], []):
            asked = DescribeConfigsResource(kind, name, keys)
            pair.send(DescribeConfigsRequest([asked], include_synonyms=keys is None), version)
    pair.send(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, None)], True, True), version)
    pair.send(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, None)]), version)
    pair.send(DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)], True, True), version)
    pair.send(
        DescribeConfigsRequest([DescribeConfigsResource(kind, name, ["retention.ms"]) for kind, name in resources[:6]]),
        version,
    )
    pair.send(DescribeConfigsRequest([]), version)


def _incremental(
    pair: Pair, version: int, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> None:
    resource = AlterConfigsResource(kind, name, [AlterableConfig(*each) for each in changes])
    pair.send(IncrementalAlterConfigsRequest([resource], validate_only), version)


def _describe(pair: Pair, kind: int, name: str, *keys: str) -> None:
    """Only what the controller answered counts at once; the image a broker describes from may be a moment behind."""
    resource = DescribeConfigsResource(kind, name, list(keys))
    request = DescribeConfigsRequest([resource], include_synonyms=True)
    pair.settle()
    pair.send(request, 4)


@scenario(IncrementalAlterConfigsRequest)
def incremental_alter_configs(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"))

    def alter(*changes: tuple[str, int, str | None], validate_only: bool = False) -> None:
        _incremental(pair, version, TOPIC, topic, *changes, validate_only=validate_only)

    alter(("retention.ms", SET, "1000"), ("cleanup.policy", APPEND, "compact"))
    _describe(pair, TOPIC, topic, "retention.ms", "cleanup.policy")
    alter(("cleanup.policy", APPEND, "compact"))
    alter(("cleanup.policy", SUBTRACT, "delete"))
    alter(("cleanup.policy", SUBTRACT, "nothing"))
    alter(("cleanup.policy", SUBTRACT, "compact"))
    _describe(pair, TOPIC, topic, "cleanup.policy")
    alter(("retention.ms", APPEND, "5"))
    alter(("retention.ms", SUBTRACT, "5"))
    alter(("retention.ms", DELETE, None))
    alter(("retention.ms", DELETE, "1"))
    alter(("no.such", DELETE, None))
    alter(("no.such", SET, "1"))
    alter(("retention.ms", SET, None))
    alter(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    alter(("retention.ms", SET, "8"), validate_only=True)
    alter()
    _describe(pair, TOPIC, topic, "retention.ms", "cleanup.policy", "no.such")
    for settings in CONFIGS:
        alter(*((name, SET, value) for name, value in settings), validate_only=True)


@scenario(IncrementalAlterConfigsRequest, versions=range(1, 2))
def incremental_alter_configs_lists(pair: Pair, version: int) -> None:
    """Parts of lists, and which of several wrong settings is named."""
    topic = pair.create(pair.name("t"))

    def alter(*changes: tuple[str, int, str | None]) -> None:
        _incremental(pair, version, TOPIC, topic, *changes)
        _describe(pair, TOPIC, topic, "cleanup.policy", "leader.replication.throttled.replicas")

    throttled = "leader.replication.throttled.replicas"
    for operand in ("0:1,1:1,0:1", "2:1,", ",3:1", "", ",", "2:1,,4:1", " 5:1"):
        alter((throttled, APPEND, operand))
    for operand in ("0:1", "", ",", "2:1,3:1,", "5:1"):
        alter((throttled, SUBTRACT, operand))
    alter(("cleanup.policy", SET, "compact,delete"))
    for operand in ("compact,compact", "", "delete,"):
        alter(("cleanup.policy", SUBTRACT, operand))
    alter(("cleanup.policy", APPEND, "compact,delete,compact"))
    alter(("compression.gzip.level", APPEND, "9"), ("compression.type", APPEND, "uncompressed"))
    names = (
        "segment.ms",
        "retention.ms",
        "segment.bytes",
        "flush.ms",
        "preallocate",
        "no.such",
        "index.interval.bytes",
    )
    for first in range(len(names)):
        alter(*((name, SUBTRACT, "1") for name in names[first:] + names[:first]))
        alter(*((name, APPEND, "1") for name in names[first:]))


@scenario(IncrementalAlterConfigsRequest)
def incremental_alter_configs_resources(pair: Pair, version: int) -> None:
    def alter(kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False) -> None:
        _incremental(pair, version, kind, name, *changes, validate_only=dry)

    alter(TOPIC, pair.name("missing"), ("retention.ms", SET, "1"))
    alter(TOPIC, "", ("retention.ms", SET, "1"))
    alter(TOPIC, "a b", ("retention.ms", SET, "1"))
    for node in ("1", ""):
        alter(BROKER, node, ("log.retention.ms", SET, "86400000"))
        _describe(pair, BROKER, node, "log.retention.ms")
        alter(BROKER, node, ("log.retention.ms", DELETE, None))
        alter(BROKER, node, ("log.retention.ms", SET, "abc"), dry=True)
        alter(BROKER, node, ("log.cleaner.threads", SET, "-1"), dry=True)
        alter(BROKER, node, ("log.cleaner.threads", SET, "900"), dry=True)
        alter(BROKER, node, ("node.id", SET, "7"), dry=True)
        alter(BROKER, node, ("log.dirs", SET, "/tmp"), dry=True)
        alter(BROKER, node, ("no.such", SET, "7"), dry=True)
        alter(BROKER, node, ("max.connections", SET, "100"), dry=True)
        alter(BROKER, node, ("leader.replication.throttled.rate", SET, "100"), dry=True)
        alter(BROKER, node, ("log.cleanup.policy", APPEND, "compact"), dry=True)
        alter(BROKER, node, ("listeners", SET, "PLAINTEXT://x:1"), dry=True)
        _describe(pair, BROKER, node, "log.retention.ms")
    alter(BROKER, "9", ("log.retention.ms", SET, "1"))
    alter(BROKER, "x", ("log.retention.ms", SET, "1"))
    group = pair.name("g")
    alter(GROUP, group, ("consumer.session.timeout.ms", SET, "50000"))
    _describe(pair, GROUP, group)
    alter(GROUP, group, ("consumer.session.timeout.ms", SET, "1"))
    alter(GROUP, group, ("consumer.heartbeat.interval.ms", SET, "9999999"))
    alter(GROUP, group, ("no.such", SET, "1"))
    alter(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    alter(GROUP, group, ("consumer.session.timeout.ms", DELETE, None))
    metrics = pair.name("m")
    alter(CLIENT_METRICS, metrics, ("interval.ms", SET, "5000"), ("metrics", SET, "a,b"))
    _describe(pair, CLIENT_METRICS, metrics)
    alter(CLIENT_METRICS, metrics, ("metrics", APPEND, "c"))
    alter(CLIENT_METRICS, metrics, ("interval.ms", SET, "1"))
    alter(CLIENT_METRICS, metrics, ("match", SET, "client_id"))
    alter(CLIENT_METRICS, metrics, ("match", SET, "client_id=a.*"))
    alter(CLIENT_METRICS, metrics, ("no.such", SET, "1"))
    alter(CLIENT_METRICS, "", ("interval.ms", SET, "5000"))
    alter(CLIENT_METRICS, metrics, ("interval.ms", DELETE, None), ("metrics", DELETE, None), ("match", DELETE, None))
    alter(BROKER_LOGGER, "1", ("no.such.logger", SET, "INFO"), dry=True)
    alter(99, "x", ("retention.ms", SET, "1"))
    alter(0, "x", ("retention.ms", SET, "1"))
    topic = pair.create(pair.name("t"))
    twice = AlterConfigsResource(TOPIC, topic, [AlterableConfig("retention.ms", SET, "5")])
    pair.send(IncrementalAlterConfigsRequest([twice, twice]), version)
    missing = AlterConfigsResource(TOPIC, pair.name("missing"), [AlterableConfig("retention.ms", SET, "5")])
    pair.send(IncrementalAlterConfigsRequest([missing, twice]), version)
    pair.send(IncrementalAlterConfigsRequest([]), version)


@scenario(old.AlterConfigsRequest)
def alter_configs(pair: Pair, version: int) -> None:
    topic = pair.create(pair.name("t"), 1, segment_bytes="1048576")

    def alter(kind: int, name: str, *settings: tuple[str, str | None], dry: bool = False) -> None:
        resource = old.AlterConfigsResource(kind, name, [old.AlterableConfig(*each) for each in settings])
        pair.send(old.AlterConfigsRequest([resource], dry), version)

    alter(TOPIC, topic, ("retention.ms", "1000"), ("cleanup.policy", "compact"))
    _describe(pair, TOPIC, topic, "retention.ms", "cleanup.policy", "segment.bytes")
    alter(TOPIC, topic, ("retention.ms", "x"))
    alter(TOPIC, topic, ("retention.ms", None))
    alter(TOPIC, topic, ("no.such", "1"))
    alter(TOPIC, topic, ("retention.ms", "1"), ("retention.ms", "2"))
    alter(TOPIC, topic, ("retention.ms", "9"), dry=True)
    alter(TOPIC, topic)
    _describe(pair, TOPIC, topic, "retention.ms", "cleanup.policy", "segment.bytes")
    alter(TOPIC, pair.name("missing"), ("retention.ms", "1"))
    alter(TOPIC, "", ("retention.ms", "1"))
    alter(BROKER, "1", ("log.retention.ms", "x"), dry=True)
    alter(BROKER, "9", ("log.retention.ms", "1"), dry=True)
    alter(BROKER, "1", ("node.id", "1"), dry=True)
    alter(GROUP, pair.name("g"), ("consumer.session.timeout.ms", "1"), dry=True)
    alter(BROKER_LOGGER, "1", ("root", "INFO"), dry=True)
    alter(99, "x", ("a", "b"))
    pair.send(old.AlterConfigsRequest([]), version)


@scenario(ListConfigResourcesRequest, servers="quiet")
def list_config_resources(pair: Pair, version: int) -> None:
    pair.create(pair.name("t"), 1, retention_ms="5000")
    _incremental(pair, 1, GROUP, pair.name("g"), ("consumer.session.timeout.ms", SET, "50000"))
    _incremental(pair, 1, CLIENT_METRICS, pair.name("m"), ("interval.ms", SET, "5000"))
    pair.settle()
    for kinds in (
        [],
        [TOPIC],
        [GROUP],
        [CLIENT_METRICS],
        [BROKER],
        [BROKER_LOGGER],
        [GROUP, CLIENT_METRICS],
        [GROUP, GROUP],
        [99],
        [0],
    ):
        pair.send(ListConfigResourcesRequest(kinds), version)
    _incremental(pair, 1, GROUP, pair.name("g"), ("consumer.session.timeout.ms", DELETE, None))
    _incremental(pair, 1, CLIENT_METRICS, pair.name("m"), ("interval.ms", DELETE, None))
    pair.settle()
