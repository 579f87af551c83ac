"""`ottla up`: write a server.properties once, format once, run."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.env.config.load import load
from ottla.env.config.properties import parse_properties
from ottla.protocol.primitives import Message
from ottla.security.exposure import FLAG, SETTING, open_refusal
from ottla.security.hosts import is_loopback
from ottla.server.errors import StartupError
from ottla.server.formatting.storage import format_standalone, is_formatted
from ottla.server.node import Node
from ottla.server.run import exit_code, read_properties, run
from ottla.server.up.companions import Companions
from ottla.server.up.secured import LISTENERS, SecureFolder, advertised_name, refuse_open_directory
from ottla.server.up.taken_ports import free_or_none

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with; bound only with --host
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
OPEN_LISTENERS = """\
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{name}:{port},CONTROLLER://{name}:{controller_port}
"""
PROPERTIES = """\
# Written by `ottla up`. You may change this file. The properties have Kafka's names: Apache Kafka starts with this file too.
process.roles=broker,controller
node.id=1
{listeners}\
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
    secure: bool = False,
    companions: Companions | None = None,
    greet: Callable[[Node], None] | None = None,
) -> int:
    """The exit code. A port of None beside: no schema registry, no console. `greet` replaces the lines about the node."""
    folder = SecureFolder(directory)
    secure_folder = folder if secure or folder.exists else None
    file = directory / "server.properties"
    companions = Companions() if companions is None else companions
    near_host = host or DEFAULT_HOST
    registry_port = free_or_none("the schema registry", near_host, registry_port, "registry")
    console_port = free_or_none("the console", near_host, console_port, "console")

    def started(node: Node) -> None:
        if greet is None:
            _greet(node, secure_folder)
        else:
            greet(node)
        if secure_folder is not None:
            _start_secured(companions, node, near_host, secure_folder, registry_port, console_port)
            return
        if registry_port is not None:
            companions.start([*registry_command(node.bootstrap_servers, near_host, registry_port), *opened])
        if console_port is not None:
            console = console_command(node.bootstrap_servers, near_host, console_port, registry_port)
            companions.start([*console, *opened])

    opened = [FLAG] if allow_open else []
    own = (
        {}
        if registry_port is None or secure_folder is not None
        else {"ottla.schema.registry.url": f"http://{near(near_host)}:{registry_port}"}
    )
    own |= {SETTING: "true"} if allow_open else {}

    def run_up() -> int:
        at = listen_address(file, host, port)
        if secure_folder is None:
            refuse_open(host, allow_open=allow_open)
        else:
            refuse_open_directory(file, secure_folder)
        return _up(file, *at, own, started, companions.stop, secure_folder)

    return exit_code(file, run_up)


def _start_secured(
    companions: Companions,
    node: Node,
    host: str,
    folder: SecureFolder,
    registry_port: int | None,
    console_port: int | None,
) -> None:
    """Registry and console with TLS and a login of their own, as clients that log in."""
    url = None if registry_port is None else f"https://{near(host)}:{registry_port}"
    variables = folder.environment(url)
    if registry_port is not None:
        registry = registry_command(node.bootstrap_servers, host, registry_port)
        companions.start([*registry, "--client-config", str(folder.librdkafka), *folder.web_options()], variables)
    if console_port is not None:
        console = console_command(node.bootstrap_servers, host, console_port, None)
        companions.start([*console, "--command-config", str(folder.java), *folder.web_options()], variables)


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
    folder: SecureFolder | None = None,
) -> int:
    """The file's properties override those of `own`."""
    with contextlib.nullcontext() if folder is None else folder.removed_on_failure():
        node = _bound_node(file, host, port, own, folder)
    return run(node, started, stopping)


def _bound_node(file: Path, host: str, port: int, own: dict[str, str], folder: SecureFolder | None) -> Node:
    """A node that has its ports, on a directory that is ready."""
    existed = file.exists()
    ports = free_ports(host, 3) if port == 0 else range(port, port + 3)
    if folder is not None:
        folder.prepare(advertised_name(host, WILDCARDS), _advertised(file, f"{near(host)}:{ports[0]}"))
    text = new_properties(file.parent, host, ports, folder)
    config = load({**own, **(read_properties(file) if existed else parse_properties(text))})
    node = Node(config)
    try:
        node.bind()
    except StartupError as error:
        advice = (
            f"change {file}" if existed else "choose another --port (the controller and the metrics use the next two)"
        )
        raise StartupError(f"{error}: {advice}, or stop the program that has the port") from error
    if not existed:
        write_properties(file, text)
    if not is_formatted(config):
        format_standalone(config, node.ports, _first_records(folder))
    return node


def _advertised(file: Path, address: str) -> str:
    """The brokers' address for clients: that of an existing file."""
    if not file.exists():
        return address
    endpoint = load(read_properties(file)).advertised_broker_listeners[0]
    return f"{endpoint.host or DEFAULT_HOST}:{endpoint.port}"


def _first_records(folder: SecureFolder | None) -> list[Message]:
    if folder is None:
        return []
    from ottla.server.formatting.first_users import scram_record

    return [scram_record(folder.first_user())]


def free_ports(host: str, count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for probe in sockets:
            probe.bind((host, 0))
        return [probe.getsockname()[1] for probe in sockets]
    finally:
        for probe in sockets:
            probe.close()


def new_properties(directory: Path, host: str, ports: Sequence[int], folder: SecureFolder | None = None) -> str:
    """`ports`: the clients', the controller's, the metrics'."""
    data = (directory / "data").absolute()
    # Clients cannot connect to 0.0.0.0: a server on every address, as in a container, advertises the machine's name.
    name = advertised_name(host, WILDCARDS)
    port, controller_port, http_port = ports
    listeners = (OPEN_LISTENERS if folder is None else LISTENERS).format(
        host=host, name=name, port=port, controller_port=controller_port
    )
    text = PROPERTIES.format(
        listeners=listeners, name=name, controller_port=controller_port, host=host, http_port=http_port, data=data
    )
    return text if folder is None else text + folder.properties()


def write_properties(file: Path, text: str) -> None:
    """Called only after the ports are bound, so that a failed start leaves no file behind."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            out.write(text)  # users may add passwords to the file later
    except OSError as error:
        raise StartupError(f"cannot write {file}: {error.strerror}") from error


def _greet(node: Node, folder: SecureFolder | None) -> None:
    print(f"ottla is up at {node.bootstrap_servers} (data in {', '.join(node.config.data_dirs)})", flush=True)
    for line in folder.greeting(node.bootstrap_servers) if folder is not None else ():
        print(line, flush=True)
    print("Ctrl-C stops the log.", flush=True)
