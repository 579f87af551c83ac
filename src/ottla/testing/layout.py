"""The folders, ports and properties of the nodes of a test broker."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ottla.runtime.listener import bind
from ottla.server.formatting.storage import random_uuid

HOST = "127.0.0.1"
MOST_NODES = 9
CLIENTS = "PLAINTEXT"
LOGINS = "SASL_PLAINTEXT"
INTERNAL = "INTERNAL"
"""The listener of nodes and of the test kit, when clients must log in."""
_CONTROLLERS = 3
_FACTOR = 3

NODE_PROPERTIES = {
    "controller.listener.names": "CONTROLLER",
    "group.initial.rebalance.delay.ms": "0",
    "ottla.busy.poll.us": "0",  # the test's own threads want the interpreter
    "ottla.loop.stall.ms": "0",  # and hold it: a stall of the loop is no news about the node
}
_CLUSTER = {
    "controller.quorum.election.timeout.ms": "200",
    "default.replication.factor": "{factor}",
    "min.insync.replicas": "{min_isr}",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
}
_INTERNAL_TOPICS = {
    "offsets.topic.replication.factor": "{factor}",
    "transaction.state.log.replication.factor": "{factor}",
    "transaction.state.log.min.isr": "{min_isr}",
    "share.coordinator.state.topic.replication.factor": "{factor}",
    "share.coordinator.state.topic.min.isr": "{min_isr}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    node_id: int
    properties: dict[str, str]
    sockets: tuple[socket.socket, ...]
    ports: tuple[int, ...]
    """Bound for the node. A node that is alone binds its ports itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    nodes: tuple[NodePlan, ...]
    cluster_id: str
    """Empty for a node that is alone: the node chooses the id."""


def plan(directory: Path, count: int, auth: Mapping[str, str], properties: Mapping[str, str]) -> Plan:
    """The nodes of a broker. `auth`: passwords by user."""
    if count == 1:
        return Plan(nodes=(_alone(directory, auth, properties),), cluster_id="")
    ports, cluster_id, sockets = _ports(directory, count, len(_listeners(auth)))
    voters = ",".join(f"{node_id}@{HOST}:{ports[node_id][-1]}" for node_id in range(1, min(count, _CONTROLLERS) + 1))
    nodes = []
    for node_id, own_ports in ports.items():
        controls = node_id <= _CONTROLLERS
        listeners = _listeners(auth) if controls else _listeners(auth)[:-1]
        own = {
            **_common(auth, count),
            **_scaled(_CLUSTER, count),
            "process.roles": "broker,controller" if controls else "broker",
            "controller.quorum.voters": voters,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in zip(listeners, own_ports, strict=False)),
            "node.id": str(node_id),
            "log.dirs": str(directory / f"node-{node_id}"),
        }
        nodes.append(
            NodePlan(
                node_id=node_id,
                properties={**own, **properties},
                sockets=sockets[node_id],
                ports=tuple(own_ports),
            )
        )
    return Plan(nodes=tuple(nodes), cluster_id=cluster_id)


def _alone(directory: Path, auth: Mapping[str, str], properties: Mapping[str, str]) -> NodePlan:
    own = {
        **_common(auth, 1),
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": ",".join(f"{name}://{HOST}:0" for name in _listeners(auth)),
        "controller.quorum.bootstrap.servers": f"{HOST}:9093",
        "log.dirs": str(directory / "data"),
    }
    return NodePlan(node_id=1, properties={**own, **properties}, sockets=(), ports=())


def _listeners(auth: Mapping[str, str]) -> list[str]:
    """The controller's is the last."""
    return [LOGINS, INTERNAL, "CONTROLLER"] if auth else [CLIENTS, "CONTROLLER"]


def _common(auth: Mapping[str, str], count: int) -> dict[str, str]:
    return {**NODE_PROPERTIES, **_scaled(_INTERNAL_TOPICS, count), **(_logins(auth) if auth else {})}


def _scaled(properties: Mapping[str, str], count: int) -> dict[str, str]:
    factor = min(count, _FACTOR)
    facts = {"factor": factor, "min_isr": max(factor - 1, 1)}
    return {name: value.format(**facts) for name, value in properties.items()}


def _logins(auth: Mapping[str, str]) -> dict[str, str]:
    for text in (*auth, *auth.values()):
        if '"' in text or "\\" in text:
            raise ValueError("auth: a user or a password cannot have a quotation mark or a backslash")
    users = " ".join(f'user_{name}="{password}"' for name, password in auth.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listener.security.protocol.map": f"{LOGINS}:SASL_PLAINTEXT,{INTERNAL}:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": INTERNAL,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        "super.users": "User:ANONYMOUS",
    }


def _ports(
    directory: Path, count: int, each_node: int
) -> tuple[dict[int, list[int]], str, dict[int, tuple[socket.socket, ...]]]:
    """The ports of each node, the cluster's id, and sockets bound to the ports. A folder keeps its ports: the voters of its
    cluster have them in their properties.
    """
    file = directory / "cluster.json"
    if file.exists():
        stored = json.loads(file.read_text("utf-8"))
        ports = {int(node_id): list(numbers) for node_id, numbers in stored["ports"].items()}
        if len(ports) != count:
            raise ValueError(f"{directory} has a cluster of {len(ports)} nodes, not of {count}")
        return ports, str(stored["cluster_id"]), dict.fromkeys(ports, ())
    sockets = {
        node_id: tuple(bind(HOST, 0) for _ in range(each_node if node_id <= _CONTROLLERS else each_node - 1))
        for node_id in range(1, count + 1)
    }
    ports = {node_id: [int(sock.getsockname()[1]) for sock in bound] for node_id, bound in sockets.items()}
    cluster_id = random_uuid()
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"cluster_id": cluster_id, "ports": ports}), "utf-8")
    return ports, cluster_id, sockets
