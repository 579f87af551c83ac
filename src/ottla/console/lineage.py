"""Who writes to and reads from each topic, as the brokers saw it; groups fill in what they commit.

A pipeline or connector is one client: its groups (the positions in its inputs) and the client ids of its exactly-once writers
are drawn as the pipeline or connector.

Brokers of Ottla report this at the address in their setting `ottla.http.listener`. Apache Kafka does not report it, and
the page shows that. A pipeline appears as a client that reads some topics and writes others.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.error import URLError
from urllib.request import Request
from uuid import NAMESPACE_URL, uuid5

from ottla.client.cluster import Cluster
from ottla.client.configs import ConfigResourceType, describe_configs
from ottla.console.cluster.snapshot import ClusterSnapshot
from ottla.console.drawing import Drawing, DrawingNode, draw
from ottla.console.upstream import node_headers
from ottla.env.http_request import open_request
from ottla.model.marker_groups import connector_writer, writer_client_id
from ottla.model.peer_text import cut

OWN_CLIENT_ID = "ottla-console"
"""The lineage leaves out this client id: the console reads topics for its own pages."""
HTTP_LISTENER = "ottla.http.listener"
_CERTIFICATES = ("ottla.http.tls.certificate", "ottla.http.tls.key")
_TIMEOUT_S = 2.0
_MAX_BYTES = 8 * 1024 * 1024
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, never bound


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str


@dataclass(slots=True)
class Lineage:
    producers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    edges: set[Edge] = field(default_factory=set)
    reporting_brokers: list[int] = field(default_factory=list)
    """Brokers that reported their clients."""

    def of(self, topics: Container[str]) -> Lineage:
        """What touches these topics, and nothing else."""
        kept = Lineage(reporting_brokers=self.reporting_brokers)
        for edge in self.edges:
            (kind, source), (_, target) = (endpoint.split(":", 1) for endpoint in (edge.source, edge.target))
            if kind == "topic" and source in topics:
                kept.read(target, source)
            elif kind == "client" and target in topics:
                kept.wrote(source, target)
        return kept

    def wrote(self, who: str, topic: str) -> None:
        self.producers.add(who)
        self.topics.add(topic)
        self.edges.add(Edge("client:" + who, "topic:" + topic))

    def read(self, who: str, topic: str) -> None:
        self.consumers.add(who)
        self.topics.add(topic)
        self.edges.add(Edge("topic:" + topic, "client:" + who))


def find_listeners(cluster: Cluster, snapshot: ClusterSnapshot) -> dict[int, str]:
    """Broker -> its HTTP address, of those that have one and answer."""
    addresses = {}
    for broker in (row for row in snapshot.brokers if row.answers):
        configs = describe_configs(cluster, ConfigResourceType.BROKER, [str(broker.id)]).get(str(broker.id), [])
        values = {config.name: config.value for config in configs if config.value}
        host, _, port = values.get(HTTP_LISTENER, "").rpartition(":")
        scheme = "https" if any(name in values for name in _CERTIFICATES) else "http"
        if port:
            addresses[broker.id] = f"{scheme}://{broker.host if host.strip('[]') in _WILDCARDS else host}:{port}"
    return addresses


def gather(
    snapshot: ClusterSnapshot,
    listeners: dict[int, str],
    pipelines: Iterable[Mapping[str, Any]] = (),
    login: str | None = None,
) -> Lineage:
    """`login`: NAME:PASSWORD for the brokers' HTTP listeners."""
    lineage, pipelines = Lineage(), list(pipelines)
    writers, readers = _owners(pipelines)
    for broker, address in listeners.items():
        try:
            request = Request(f"{address}/lineage", headers=node_headers(address, login))  # noqa: S310 - the broker's own address
            with open_request(request, _TIMEOUT_S) as answer:
                seen = json.loads(answer.read(_MAX_BYTES))
        except (URLError, TimeoutError, ConnectionError, ValueError):
            continue
        lineage.reporting_brokers.append(broker)
        _add(lineage, seen, writers)
    for group in snapshot.groups.values():
        for topic in {topic for topic, _ in group.committed}:
            lineage.read(readers.get(group.id) or f"group {cut(group.id)}", topic)
    for pipeline in pipelines:
        who = _name(pipeline)
        for name in _topics(pipeline.get("inputs")):
            lineage.read(who, name)
        for name in _topics(pipeline.get("outputs")):
            lineage.wrote(who, name)
    return lineage


def _name(pipeline: Mapping[str, Any]) -> str:
    return f"{pipeline.get('kind') or 'pipeline'} {pipeline.get('name')}"


def _owners(pipelines: Iterable[Mapping[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
    """The pipeline or connector of each exactly-once writer's client id, and of each group that holds input positions."""
    writers, readers = {}, {}
    for pipeline in pipelines:
        who, name = _name(pipeline), str(pipeline.get("name"))
        if pipeline.get("kind") == "connector":
            writers[writer_client_id(connector_writer(name))] = who
            readers[f"connect-{name}"] = who
        for query in pipeline.get("queries") or ():
            writers[writer_client_id(str(query.get("id")))] = who
            readers[str(query.get("name")).replace("/", ".")] = who
    return writers, readers


def _topics(ports: Any) -> list[str]:
    return [port.removeprefix("topic:") for port in ports or () if str(port).startswith("topic:")]


def _add(lineage: Lineage, seen: dict[str, Any], writers: Mapping[str, str]) -> None:
    for row in seen.get("produce", []):
        lineage.wrote(writers.get(str(row.get("client_id"))) or _who(row), str(row["topic"]))
    for row in seen.get("fetch", []):
        if row.get("client_id") != OWN_CLIENT_ID:
            lineage.read(_who(row), str(row["topic"]))


def _who(row: dict[str, Any]) -> str:
    client, principal = cut(str(row.get("client_id") or "?")), cut(str(row.get("principal") or ""))
    return client if principal in ("", "User:ANONYMOUS") else f"{client} ({principal})"


def open_lineage(lineage: Lineage, cluster_id: str) -> list[dict[str, Any]]:
    """OpenLineage run events: each client is a job, each topic a dataset."""
    namespace = f"kafka://{cluster_id}"
    now = datetime.now(UTC).isoformat()
    inputs: dict[str, list[str]] = {}
    outputs: dict[str, list[str]] = {}
    for edge in lineage.edges:
        inputs.setdefault(edge.target, []).append(edge.source[6:])
        outputs.setdefault(edge.source, []).append(edge.target[6:])
    events = []
    for who in sorted(lineage.producers | lineage.consumers):
        client = "client:" + who
        events.append({
            "eventType": "RUNNING",
            "eventTime": now,
            "producer": "https://ottla.dev/console",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {"runId": str(uuid5(NAMESPACE_URL, f"{namespace}/{who}"))},
            "job": {"namespace": namespace, "name": who},
            "inputs": _datasets(namespace, sorted(inputs.get(client, ()))),
            "outputs": _datasets(namespace, sorted(outputs.get(client, ()))),
        })  # fmt: skip
    return events


def _datasets(namespace: str, names: Iterable[str]) -> list[dict[str, str]]:
    return [{"namespace": namespace, "name": name} for name in names]


def lineage_drawing(lineage: Lineage) -> Drawing:
    """Three columns: who writes, topics, who reads. A client that does both stands in both."""
    columns = (
        [DrawingNode("client:" + who, who, "client") for who in sorted(lineage.producers)],
        [DrawingNode("topic:" + topic, topic, "topic", topic) for topic in sorted(lineage.topics)],
        [DrawingNode("client:" + who, who, "client") for who in sorted(lineage.consumers)],
    )
    lines = [
        (0, edge.source, 1, edge.target) if edge.target.startswith("topic:") else (1, edge.source, 2, edge.target)
        for edge in sorted(lineage.edges, key=lambda edge: (edge.source, edge.target))
    ]
    return draw(columns, lines)
