"""`ottla up`: write a server.properties once, format once, run."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.env.config.load import load
from ottla.env.config.problems import ConfigError
from ottla.server.errors import StartupError
from ottla.server.node import Node
from ottla.server.run import read_properties, run
from ottla.server.storage import format_standalone, is_formatted

PROPERTIES = """\
# Written by `ottla up`; yours to change. These are Kafka's own names: Apache Kafka starts on this file too.
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={host}:{controller_port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def up(directory: Path, host: str, port: int) -> int:
    """The exit code."""
    file = directory / "server.properties"
    try:
        if not file.exists():
            write_properties(file, host, port)
        properties = read_properties(file)
        config = load(properties)
        node = Node(config)
        node.bind()
        if not is_formatted(config):
            format_standalone(config, node.ports)
        return run(node, _greet)
    except ConfigError as error:
        for problem in error.problems:
            print(f"ottla: {file}: {problem}", file=sys.stderr)
    except StartupError as error:
        print(f"ottla: {error}", file=sys.stderr)
    return 1


def write_properties(file: Path, host: str, port: int) -> None:
    data = (file.parent / "data").absolute()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PROPERTIES.format(host=host, port=port, controller_port=port + 1, data=data), "utf-8")
    except OSError as error:
        raise StartupError(f"cannot write {file}: {error.strerror}") from error


def _greet(node: Node) -> None:
    print(f"ottla is up at {node.bootstrap_servers} (data in {', '.join(node.config.data_dirs)})", flush=True)
    print("Ctrl-C stops it.", flush=True)
