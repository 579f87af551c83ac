"""`ottla up`: write a server.properties once, format once, run."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.env.config.load import load
from ottla.env.config.properties import parse_properties
from ottla.security.exposure import FLAG, SETTING, open_refusal
from ottla.security.hosts import is_loopback
from ottla.server.errors import StartupError
from ottla.server.formatting.storage import format_standalone, is_formatted
from ottla.server.node import Node
from ottla.server.run import exit_code, read_properties, run
from ottla.server.up.companions import Companions

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with; bound only with --host
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
PROPERTIES = """\
# Written by `ottla up`. You may change this file. The properties have Kafka's names: Apache Kafka starts with this file too.
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{name}:{port},CONTROLLER://{name}:{controller_port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={name}:{controller_port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# Property of Ottla only: metrics, health and lineage over HTTP.
ottla.http.listener={host}:{http_port}
"""


def up(
    directory: Path,
    host: str | None,
    port: int | None,
    *,
    registry_port: int | None = None,
    console_port: int | None = None,
    allow_open: bool = False,
    companions: Companions | None = None,
    greet: Callable[[Node], None] | None = None,
) -> int:
    """The exit code. A port of None beside: no schema registry, no console. `greet` replaces the lines about the node."""
    file = directory / "server.properties"
    near_host = host or DEFAULT_HOST
    companions = Companions() if companions is None else companions

    def started(node: Node) -> None:
        (greet or _greet)(node)
        if registry_port is not None:
            companions.start([*registry_command(node.bootstrap_servers, near_host, registry_port), *opened])
        if console_port is not None:
            console = console_command(node.bootstrap_servers, near_host, console_port, registry_port)
            companions.start([*console, *opened])

    opened = [FLAG] if allow_open else []
    own = {} if registry_port is None else {"ottla.schema.registry.url": f"http://{near(near_host)}:{registry_port}"}
    own |= {SETTING: "true"} if allow_open else {}

    def run_up() -> int:
        at = listen_address(file, host, port)
        refuse_open(host, allow_open=allow_open)
        return _up(file, *at, own, started, companions.stop)

    return exit_code(file, run_up)


def refuse_open(host: str | None, *, allow_open: bool) -> None:
    """Raises StartupError if the servers would be open to other machines without `--allow-open`."""
    if host is not None and not allow_open and not is_loopback(host):
        close = (
            "up logins first (`ottla server start` with a SASL_SSL listener, `ottla registry` and `ottla console` "
            "with --users)"
        )
        raise StartupError(open_refusal("`ottla up` (log, registry, console, metrics)", host, close=close))


def listen_address(file: Path, host: str | None, port: int | None) -> tuple[str, int]:
    """Where to listen. Raises StartupError if an existing directory listens elsewhere: its file is not changed."""
    listeners = read_properties(file).get("listeners", "") if file.exists() else None
    for option, value, text in (("--host", host, f"//{host}:"), ("--port", port, f":{port},")):
        if listeners is not None and value and text not in f"{listeners},":
            raise StartupError(
                f"{file} has listeners={listeners}, and {option} {value} applies to a new directory only; "
                "change the file, or choose another --dir"
            )
    return host or DEFAULT_HOST, DEFAULT_PORT if port is None else port


def registry_command(bootstrap_servers: str, host: str, port: int) -> list[str]:
    where = ["--bootstrap-servers", bootstrap_servers, "--listen", f"{host}:{port}"]
    return ["registry", *where, "--alone", "--replication-factor", "1", "--until-stdin-closes"]


def console_command(bootstrap_servers: str, host: str, port: int, registry_port: int | None) -> list[str]:
    where = ["--bootstrap-servers", bootstrap_servers, "--listen", f"{host}:{port}"]
    registry = ["--registry", f"http://{near(host)}:{registry_port}"] if registry_port is not None else []
    names = ["--allowed-host", socket.gethostname()] if host in WILDCARDS else []
    return ["console", *where, *registry, *names, "--until-stdin-closes"]


def near(host: str) -> str:
    """The address by which this machine reaches a server that listens on `host`."""
    return "127.0.0.1" if host in WILDCARDS else host


def _up(
    file: Path,
    host: str,
    port: int,
    own: dict[str, str],
    started: Callable[[Node], None],
    stopping: Callable[[], None],
) -> int:
    """The file's properties override those of `own`."""
    existed = file.exists()
    text = new_properties(file.parent, host, free_ports(host, 3) if port == 0 else range(port, port + 3))
    config = load({**own, **(read_properties(file) if existed else parse_properties(text))})
    node = Node(config)
    node.bind()
    if not existed:
        write_properties(file, text)
    if not is_formatted(config):
        format_standalone(config, node.ports)
    return run(node, started, stopping)


def free_ports(host: str, count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for probe in sockets:
            probe.bind((host, 0))
        return [probe.getsockname()[1] for probe in sockets]
    finally:
        for probe in sockets:
            probe.close()


def new_properties(directory: Path, host: str, ports: Sequence[int]) -> str:
    """`ports`: the clients', the controller's, the metrics'."""
    data = (directory / "data").absolute()
    # Clients cannot connect to 0.0.0.0: a server on every address, as in a container, advertises the machine's name.
    name = socket.gethostname() if host in WILDCARDS else host
    port, controller_port, http_port = ports
    return PROPERTIES.format(
        host=host, name=name, port=port, controller_port=controller_port, http_port=http_port, data=data
    )


def write_properties(file: Path, text: str) -> None:
    """Called only after the ports are bound, so that a failed start leaves no file behind."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            out.write(text)  # users may add passwords to the file later
    except OSError as error:
        raise StartupError(f"cannot write {file}: {error.strerror}") from error


def _greet(node: Node) -> None:
    print(f"ottla is up at {node.bootstrap_servers} (data in {', '.join(node.config.data_dirs)})", flush=True)
    print("Ctrl-C stops the log.", flush=True)
