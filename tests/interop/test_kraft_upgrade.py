"""kraft.version 0 -> 1 by Kafka's own kafka-features, then controllers added and removed by its kafka-metadata-quorum.

The same calls go to a static voter of each kind, and the words and exit codes must be equal. The second controller is an
Ottla node in both cases.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.ottla_server import OttlaServer
from tests.interop.settled import await_settled
from tests.quorum.members import UNHURRIED
from tests.robustness.cluster_process import wait_for
from tests.robustness.server_process import COMMAND, environment, ottla, write_properties
from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka
from tests.support.kafka_tools import FeatureCommand, MetadataQuorumCommand, run_tool
from tests.support.ports import free_ports

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

_IDS = (
    (r"(?<=directoryId=)[A-Za-z0-9_-]{22}|(?<=directory id )[A-Za-z0-9_-]{22}", "ID"),
    (r"Epoch: \d+", "Epoch: N"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
)


@contextmanager
def second_controller(directory: Path, first: ApacheKafka) -> Iterator[Path]:
    """Node 2, a controller that follows the quorum of `first`. Its properties are what add-controller wants."""
    directory.mkdir()
    file = directory / "controller.properties"
    (port,) = free_ports(1)
    write_properties(
        file,
        {
            "process.roles": "controller",
            "node.id": "2",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{first.controller_port}",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "advertised.listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory / "data"),
            **UNHURRIED,
        },
    )
    done = ottla("storage", "format", "-t", CLUSTER_ID, "-c", file, "--no-initial-controllers")
    assert done.returncode == 0, done.stderr
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, "server", "start", str(file)], env=environment(), stdout=log, stderr=log)
    try:
        yield file
    finally:
        process.kill()
        process.wait()


def transcript(server: ApacheKafka, directory: Path) -> list[tuple[str, int, str]]:
    """What each call said, with ids, epochs and addresses masked."""
    told: list[tuple[str, int, str]] = []

    def call(main_class: str, line: str, *, where: str = "--bootstrap-server") -> str:
        address = server.bootstrap_servers if where == "--bootstrap-server" else f"127.0.0.1:{server.controller_port}"
        done = run_tool(main_class, where, address, *line.split())
        text = (done.stdout + done.stderr).strip()
        masked = re.sub(r"\n\s+at .*|\nCaused by.*|\n\s+\.\.\. .*", "", text)
        for pattern, word in _IDS:
            masked = re.sub(pattern, word, masked)
        # Apache Kafka's set of voters has no order.
        masked = re.sub(
            r"\[(ReplicaKey.*?)\]", lambda found: str(sorted(re.findall(r"ReplicaKey\([^)]*\)", found[1]))), masked
        )
        told.append((re.sub(r"/\S+|[A-Za-z0-9_-]{22}", "X", line), done.returncode, masked))
        return text

    def voters() -> list[int]:
        status = run_tool(
            MetadataQuorumCommand, "--bootstrap-server", server.bootstrap_servers, "describe", "--status"
        ).stdout
        row = next((line for line in status.splitlines() if line.startswith("CurrentVoters:")), "")
        return [int(found) for found in re.findall(r'"id": (\d+)', row)]

    call(FeatureCommand, "upgrade --feature kraft.version=2")
    call(FeatureCommand, "upgrade --feature kraft.version=1 --dry-run")
    call(FeatureCommand, "upgrade --feature kraft.version=1")
    call(FeatureCommand, "upgrade --feature kraft.version=1")
    call(FeatureCommand, "downgrade --feature kraft.version=0")
    await_settled(server.bootstrap_servers)
    described = call(FeatureCommand, "describe")
    assert re.search(r"kraft.version\s.*FinalizedVersionLevel: 1", described), told
    call(MetadataQuorumCommand, "remove-controller --controller-id 7 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ")
    with second_controller(directory, server) as file:
        own = re.search(r"directory\.id=(\S+)", (directory / "data" / "meta.properties").read_text())
        assert own is not None
        line = f"--command-config {file} add-controller"
        wait_for(lambda: "Added controller" in call(MetadataQuorumCommand, line) or 2 in voters(), 60, "added")
        del told[-1]  # how often it was refused because the new one was not caught up yet is up to chance
        while told[-1][0].endswith("add-controller"):
            del told[-1]
        assert voters() == [1, 2]
        call(MetadataQuorumCommand, line)
        call(MetadataQuorumCommand, f"remove-controller --controller-id 2 --controller-directory-id {own[1]}")
        assert voters() == [1]
        call(MetadataQuorumCommand, f"remove-controller --controller-id 2 --controller-directory-id {own[1]}")
    return told


def test_a_static_voter_becomes_a_voter_of_the_log(requires_apache_kafka: None, tmp_path: Path) -> None:
    told: list[list[tuple[str, int, str]]] = []
    for kind, server_class in (("ottla", OttlaServer), ("apache", ApacheKafka)):
        with server_class(tmp_path / kind, properties=UNHURRIED) as server:
            told.append(transcript(server, tmp_path / f"second-{kind}"))
    for ours, theirs in zip(*told, strict=True):
        assert ours == theirs
    assert [code for _, code, _ in told[0]] == [1, 0, 0, 0, 1, 0, 1, 1, 0, 1]
