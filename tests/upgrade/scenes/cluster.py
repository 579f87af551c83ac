"""Three nodes that were killed in the middle of a commit: the coordinator has prepared it, one leader has no marker yet.

The quorum is static, so that the nodes find each other on the ports of another day.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.client.cluster import TRANSACTION, Cluster
from ottla.client.topics import create_topic, list_topics
from ottla.client.transactions import describe_transaction
from tests.robustness.server_process import CLUSTER_ID, ServerProcess, ottla, write_properties
from tests.upgrade import observations as observe
from tests.upgrade.observations import Json
from tests.upgrade.rows import START_MS, Record, send, send_with
from tests.upgrade.scenes.groups import offsets_in
from tests.upgrade.scenes.steps import SMALL, await_true, transactional_producer

NODES = (1, 2, 3)
PROPERTIES = SMALL | {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "3000",
}
PREPARED = "prepared"


def record(folder: Path, work: Path) -> Json:
    with running(folder, work, PROPERTIES) as servers:
        addresses = ",".join(server.bootstrap_servers for server in servers.values())
        with observe.connected(addresses) as cluster:
            create_topic(cluster, "replicated", partitions=3, replication_factor=3)
            send(
                addresses,
                "replicated",
                [Record(b"%d" % n, b"value %d" % n, START_MS + n, [], n % 3) for n in range(30)],
            )
            clerk = transactional_producer(addresses, PREPARED)
            victim = _not_coordinating(cluster)
            create_topic(cluster, "lonely", assignment={0: [victim]})
            clerk.begin_transaction()
            for topic in ("replicated", "lonely"):
                send_with(clerk, topic, [Record(b"clerk", b"prepared", START_MS + 100)])
            offsets_in(clerk, addresses, "prepared-readers", "replicated", 4)
            topics = observe.topics(cluster)
            records = observe.records(addresses, observe.places(topics))
        servers[victim].kill()
        left = {number: server for number, server in servers.items() if number != victim}
        with observe.connected(",".join(server.bootstrap_servers for server in left.values())) as cluster:
            await_true(lambda: _leaders(cluster) == set(left), "the others do not lead")
            clerk.commit_transaction(60)
            _, state = describe_transaction(cluster, PREPARED)
            assert state.transaction_state == "PrepareCommit", state.transaction_state
            ids = {"cluster_id": observe.cluster_id(cluster), "transaction": observe.plain(state)}
        for server in left.values():
            server.kill()
    return {"properties": PROPERTIES, "victim": victim, "topics": topics, "records": records, **ids}


@contextmanager
def running(folder: Path, work: Path, properties: dict[str, str]) -> Iterator[dict[int, ServerProcess]]:
    """Three nodes on `folder`/node-N, formatted if they are new; killed at the end if they still run."""
    servers = {n: ServerProcess(work / f"node-{n}", log_dirs=[folder / f"node-{n}"]) for n in NODES}
    voters = ",".join(f"{n}@127.0.0.1:{server.controller_port}" for n, server in servers.items())
    try:
        for n, server in servers.items():
            del server.properties["controller.quorum.bootstrap.servers"]
            server.properties |= properties | {"node.id": str(n), "controller.quorum.voters": voters}
            server.directory.mkdir(parents=True)
            write_properties(server.file, server.properties)
            if not (server.log_dirs[0] / "meta.properties").exists():
                done = ottla("storage", "format", "-t", CLUSTER_ID, "-c", server.file)
                assert done.returncode == 0, done.stderr
            server.launch()
        addresses = ",".join(server.bootstrap_servers for server in servers.values())
        with observe.connected(addresses) as cluster:
            await_true(lambda: len(cluster.describe("describeCluster").brokers) == len(NODES), "not all nodes are up")
        yield servers
    finally:
        for server in servers.values():
            if server.process is not None and server.process.poll() is None:
                server.kill()


def _not_coordinating(cluster: Cluster) -> int:
    """A node that coordinates neither the transaction nor the group."""
    busy = {
        cluster.retried("findCoordinator", lambda deadline, k=kind, n=name: cluster.coordinator(n, k, deadline))[2]
        for name, kind in ((PREPARED, TRANSACTION), ("prepared-readers", 0))
    }
    return next(n for n in reversed(NODES) if n not in busy)


def _leaders(cluster: Cluster) -> set[int]:
    """Of the partitions that have replicas elsewhere."""
    return {row.leader_id for one in list_topics(cluster) if one.name != "lonely" for row in one.partitions}
