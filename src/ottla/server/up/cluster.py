"""`ottla up --nodes N`: a cluster on this machine, one process per node.

Node 1 uses DIR, as with one node; the other nodes use DIR/node-2 and so on. Each has its server.properties, written
once. A new cluster has up to three controllers. If DIR has fewer than N nodes, new nodes join as brokers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, NamedTuple

from ottla.controller.format import FormatRequest
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.load import load
from ottla.metadata.meta_properties import read_meta_properties
from ottla.model.ids import Uuid, new_uuid
from ottla.protocol.api import encode_request
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.runtime.disk import DiskStorage
from ottla.security.exposure import FLAG, SETTING
from ottla.server.errors import StartupError
from ottla.server.formatting.storage import is_formatted, random_uuid, run_format
from ottla.server.run import exit_code, read_properties
from ottla.server.up.companions import Companions
from ottla.server.up.node_restarts import NodeRestarts
from ottla.server.up.single import (
    DEFAULT_HOST,
    console_command,
    free_ports,
    listen_address,
    refuse_open,
    registry_command,
    write_properties,
)
from ottla.server.up.taken_ports import free_or_none
from ottla.system.processes import own_command

MAX_CONTROLLERS = 3
MAX_FACTOR = 3
START_SECONDS = 60.0
_LOCK = ".up.lock"
STOP_SECONDS = 90.0

PROPERTIES = """\
# Written by `ottla up --nodes {nodes}`. You may change this file. The properties have Kafka's names: Apache Kafka starts with this file too.
process.roles={roles}
node.id={node}
listeners={listeners}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={controllers}
log.dirs={data}
default.replication.factor={factor}
min.insync.replicas={min_isr}
offsets.topic.replication.factor={factor}
transaction.state.log.replication.factor={factor}
transaction.state.log.min.isr={min_isr}
share.coordinator.state.topic.replication.factor={factor}
share.coordinator.state.topic.min.isr={min_isr}
group.initial.rebalance.delay.ms=0
# Property of Ottla only: metrics, health and lineage over HTTP.
ottla.http.listener={host}:{http_port}
# The nodes share this machine's cores: no node polls a core while it waits.
ottla.busy.poll.us=0
"""


class PlannedNode(NamedTuple):
    id: int
    directory: Path
    port: int
    controller_port: int
    http_port: int

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"


def up_cluster(
    directory: Path,
    host: str | None,
    port: int | None,
    nodes: int,
    *,
    registry_port: int | None = None,
    console_port: int | None = None,
    allow_open: bool = False,
    companions: Companions | None = None,
    greet: Callable[[list[str]], None] | None = None,
) -> int:
    """The exit code. A port of None beside: no schema registry, no console. `greet` replaces the lines about the nodes."""
    companions = Companions() if companions is None else companions
    file, near_host = directory / "server.properties", host or DEFAULT_HOST
    registry_port = free_or_none("the schema registry", near_host, registry_port, "registry")
    console_port = free_or_none("the console", near_host, console_port, "console")

    def started(addresses: list[str]) -> None:
        if greet is None:
            print(f"ottla is up at {','.join(addresses)} ({nodes} nodes in {directory})", flush=True)
            print("Ctrl-C stops the nodes.", flush=True)
        else:
            greet(addresses)
        if registry_port is not None:
            command = registry_command(",".join(addresses), near_host, registry_port)
            command[command.index("--replication-factor") + 1] = str(min(nodes, MAX_FACTOR))
            companions.start([*command, *opened])
        if console_port is not None:
            console = console_command(",".join(addresses), near_host, console_port, registry_port)
            companions.start([*console, *opened])

    opened = [FLAG] if allow_open else []
    override = ["--override", f"{SETTING}=true"] if allow_open else []

    def run() -> int:
        at = listen_address(file, host, port)
        refuse_open(host, allow_open=allow_open)
        return _up(directory, *at, nodes, started, companions.stop, override)

    return exit_code(directory, run)


def _up(
    directory: Path,
    host: str,
    port: int,
    count: int,
    started: Callable[[list[str]], None],
    before_stop: Callable[[], None],
    override: Sequence[str] = (),
) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    if DiskStorage().lock(str(directory / _LOCK)) is None:  # held until this process ends
        raise StartupError(f"{directory} is in use: another `ottla up` runs its nodes")
    nodes = plan_nodes(directory, host, port, count)
    configs = prepare(nodes, host)
    processes: dict[int, subprocess.Popen[bytes]] = {}
    stopping = False

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    with contextlib.ExitStack() as logs:
        try:
            outputs: dict[int, IO[bytes]] = {}
            for node in nodes:
                outputs[node.id] = logs.enter_context((node.directory / "ottla.log").open("ab"))
                os.fchmod(outputs[node.id].fileno(), 0o640)
                processes[node.id] = _start(node, outputs[node.id], override)
            addresses = _wait_until_up(configs, processes, lambda: stopping)
            if not stopping:
                started(addresses)
            restarts = {
                node.id: NodeRestarts(node.id, partial(_start, node, outputs[node.id], override)) for node in nodes
            }
            while not stopping and not all(restart.given_up for restart in restarts.values()):
                time.sleep(0.1)
                for node_id, restart in restarts.items():
                    processes[node_id] = restart.look(processes[node_id], time.monotonic())
        finally:
            before_stop()
            _stop(processes)
    return 0 if stopping else 1


def _start(node: PlannedNode, output: IO[bytes], override: Sequence[str]) -> subprocess.Popen[bytes]:
    command = own_command("server", "start", str(node.properties), *override)
    # In a session of its own: Ctrl-C on the terminal is ours to pass on, in order.
    return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)  # noqa: S603 - our own server


def _wait_until_up(
    configs: dict[int, BrokerConfig], processes: dict[int, subprocess.Popen[bytes]], over: Callable[[], bool]
) -> list[str]:
    deadline = time.monotonic() + START_SECONDS
    addresses: list[str] = []
    for node_id, config in configs.items():
        endpoint = config.advertised_broker_listeners[0]
        address = (endpoint.host or "127.0.0.1", endpoint.port)
        while not (answers(address) and is_ready(_readiness(config))):
            if processes[node_id].poll() is not None:
                raise StartupError(
                    f"node {node_id} did not start: see {Path(config.data_dirs[0]).parent / 'ottla.log'}"
                )
            if time.monotonic() > deadline:
                raise StartupError(f"node {node_id} is not up after {START_SECONDS:.0f} s")
            if over():
                return addresses
            time.sleep(0.05)
        addresses.append(f"{address[0]}:{address[1]}")
    return addresses


def answers(address: tuple[str, int]) -> bool:
    """Whether a broker is served there: the port is bound long before, so it must answer a question."""
    question = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "ottla-up"))
    try:
        with socket.create_connection(address, 1.0) as connection:
            connection.sendall(question)
            return bool(connection.recv(4))
    except OSError:
        return False


def _readiness(config: BrokerConfig) -> str:
    """The address of the readiness check; "" with HTTPS, which may require a client certificate that we do not have."""
    secured = config.ottla_http_tls_certificate or config.ottla_http_tls_key
    return "" if secured else config.ottla_http_listener


def is_ready(http_listener: str) -> bool:
    """Whether the node reports that its broker is not fenced and can get partitions. True for a node without HTTP."""
    if not http_listener:
        return True
    host, _, port = http_listener.rpartition(":")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=1.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status != HTTPStatus.SERVICE_UNAVAILABLE
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _stop(processes: dict[int, subprocess.Popen[bytes]]) -> None:
    """Stop one node after the other, so that each hands over while there is a quorum. The last two stop at once."""
    running = [process for process in processes.values() if process.poll() is None]
    for number, process in enumerate(running):
        process.send_signal(signal.SIGTERM)
        if number < len(running) - 2:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS / len(running))
    deadline = time.monotonic() + STOP_SECONDS
    for process in running:
        try:
            process.wait(max(deadline - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ------------------------------------------------------------------------------------------------------------- files


def plan_nodes(directory: Path, host: str, port: int, count: int) -> list[PlannedNode]:
    """Where each node lives and listens. Those that are there keep their ports."""
    ports = free_ports(host, 3 * count) if port == 0 else range(port, port + 3 * count)
    nodes = []
    for node_id in range(1, count + 1):
        folder = directory if node_id == 1 else directory / f"node-{node_id}"
        # Three ports for each node, in the order of `ottla up` with one node, so that an existing node keeps its ports.
        first = 3 * (node_id - 1)
        nodes.append(PlannedNode(node_id, folder, *ports[first : first + 3]))
    return nodes


def prepare(nodes: list[PlannedNode], host: str) -> dict[int, BrokerConfig]:
    """Write and format missing directories; returns the configurations."""
    growing = nodes[0].properties.exists()
    if growing:
        first = load(read_properties(nodes[0].properties))
        controllers = _controllers_of(first)
        voters: list[PlannedNode] = []
    else:
        voters = nodes[:MAX_CONTROLLERS] if len(nodes) != 2 else nodes[:1]
        controllers = ",".join(f"{host}:{node.controller_port}" for node in voters)
        _check_free(nodes, host)
    configs = {}
    directory_ids = {node.id: new_uuid(os.urandom) for node in voters}
    cluster_id = None
    for node in nodes:
        if not node.properties.exists():
            write_properties(node.properties, _text(node, nodes, voters, host, controllers))
        config = configs[node.id] = load(read_properties(node.properties))
        if not is_formatted(config):
            cluster_id = cluster_id or _cluster_id(configs[nodes[0].id])
            _format(config, cluster_id, voters, directory_ids, host)
    return configs


def _controllers_of(config: BrokerConfig) -> str:
    return ",".join(config.controller_quorum_bootstrap_servers) or ",".join(
        f"{host}:{port}" for host, port in config.voters.values()
    )


def _check_free(nodes: list[PlannedNode], host: str) -> None:
    """Raises StartupError for a port in use, before anything is written."""
    for node in nodes:
        services = {"clients": node.port, "controller": node.controller_port, "metrics": node.http_port}
        for service, port in services.items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as error:
                    raise StartupError(
                        f"node {node.id} cannot listen on {host}:{port} ({service}): {error.strerror}: choose another --port "
                        "(each node uses three ports), or stop the program that has the port"
                    ) from error


def _text(node: PlannedNode, nodes: list[PlannedNode], voters: list[PlannedNode], host: str, controllers: str) -> str:
    controller = node in voters
    listeners = f"PLAINTEXT://{host}:{node.port}"
    if controller:
        listeners += f",CONTROLLER://{host}:{node.controller_port}"
    factor = min(len(nodes), MAX_FACTOR)
    return PROPERTIES.format(
        nodes=len(nodes),
        roles="broker,controller" if controller else "broker",
        node=node.id,
        listeners=listeners,
        controllers=controllers,
        host=host,
        http_port=node.http_port,
        data=(node.directory / "data").absolute(),
        factor=factor,
        min_isr=max(factor - 1, 1),
    )


def _cluster_id(first: BrokerConfig) -> str:
    meta_properties = read_meta_properties(DiskStorage(), first.metadata_dir)
    return random_uuid() if meta_properties is None else meta_properties.cluster_id


def _format(
    config: BrokerConfig, cluster_id: str, voters: list[PlannedNode], directory_ids: dict[int, Uuid], host: str
) -> None:
    initial = VoterSet(
        tuple(
            Voter(node.id, directory_ids[node.id], (VoterEndpoint("CONTROLLER", host, node.controller_port),))
            for node in voters
        )
    )
    run_format(
        config,
        FormatRequest(
            cluster_id=cluster_id,
            node_id=config.node_id,
            log_dirs=list(config.data_dirs),
            metadata_log_dir=config.metadata_log_dir,
            initial_controllers=initial if config.is_controller else None,
        ),
    )
