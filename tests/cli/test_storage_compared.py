"""kafka-storage: each sub-command beside Kafka's own, in folders of their own, words and exit codes.

Directory ids are drawn; which of two directories is named first is the order of a hash map; what a SCRAM password could be guessed from is hidden by ours (docs/differences.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.compared import NAMES, Call, calls, differences
from tests.interop.ottla_server import OttlaServer

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka"), pytest.mark.timeout(600)]

ID = "-t 5L6g3nShT-eMCtK--X86sw"
STATIC = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:29093
listeners=PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:29093
controller.listener.names=CONTROLLER
log.dirs={dirs}
"""
DYNAMIC = STATIC.replace("quorum.voters=1@", "quorum.bootstrap.servers=")
BROKER = DYNAMIC.replace("broker,controller", "broker").replace(",CONTROLLER://127.0.0.1:29093", "")
KINDS = {"static": STATIC, "dynamic": DYNAMIC, "broker": BROKER, "two": STATIC}
MASKS = (
    r"directory\.id=\S+",
    r"(?:salt|storedKey|serverKey)=(?:\[[^\]]*\]|\(hidden\))",
    r"^\S{22}$",
    r"NAME-1(?:-b)?(?= is already)",
)
WORKS = (
    ("static", ""),
    ("two", ""),
    ("dynamic", "-s"),
    ("dynamic", "-N"),
    ("dynamic", "-I 1@127.0.0.1:29093:JEXY6aqzQY-32P5TStzaFg"),
    ("dynamic", "-I 2@127.0.0.1:29093:JEXY6aqzQY-32P5TStzaFg"),
    ("broker", ""),
    ("static", "-r 3.9"),
    ("static", "-r 4.0 -f group.version=1"),
    ("static", "-f metadata.version=25"),
    ("static", "-f group.version=0"),
    ("static", "-f transaction.version=2 -f group.version=1"),
    ("static", "-S SCRAM-SHA-256=[name=a,password=b]"),
    ("static", "-S SCRAM-SHA-512=[name=a,password=b,iterations=8192] -S SCRAM-SHA-256=[name=b,password=c]"),
)
REFUSED = (
    ("dynamic", ""),
    ("static", "-s"),
    ("dynamic", "-s -N"),
    ("dynamic", "-I bogus"),
    ("broker", "-s"),
    ("static", "-r 9.9"),
    ("static", "-r 2.0"),
    ("static", "-f nosuch=1"),
    ("static", "-f group.version=99"),
    ("static", "-f group.version"),
    ("static", "-f group.version=x"),
    ("static", "-f metadata.version=25 -r 4.0"),
    ("static", "-f kraft.version=1"),
    ("dynamic", "-s -f kraft.version=0"),
    ("static", "-S bogus"),
    ("static", "-S SCRAM-SHA-1=[name=a,password=b]"),
    ("static", "-S SCRAM-SHA-256=name=a"),
    ("static", "-S SCRAM-SHA-256=[name=a"),
    ("static", "-S SCRAM-SHA-256=[name=a]"),
    ("static", "-S SCRAM-SHA-256=[password=b]"),
    ("static", "-S SCRAM-SHA-256=[name=a,password=b,iterations=1]"),
    ("static", "-S SCRAM-SHA-256=[name=a,password=b,iterations=99999]"),
    ("static", "--bogus"),
)
REST = calls("""
    storage --help
    storage bogus
    storage info
    storage info -c FOLDER/missing
    storage format -c FOLDER/missing -t x
    storage random-uuid
    storage random-uuid x
    storage version-mapping
    storage version-mapping -r 3.3
    storage version-mapping -r 3.9-IV0
    storage version-mapping -r 4.1
    storage version-mapping -r 9
    storage version-mapping --release-version
    storage feature-dependencies
    storage feature-dependencies -f metadata.version=20
    storage feature-dependencies -f group.version=1 -f transaction.version=2
    storage feature-dependencies -f eligible.leader.replicas.version=1
    storage feature-dependencies -f metadata.version=99
    storage feature-dependencies -f group.version
    storage feature-dependencies -f group.version=x
    storage feature-dependencies -f group.version=99
    storage feature-dependencies -f nosuch=1
    features feature-dependencies --feature metadata.version=99
    features feature-dependencies --feature group.version
    features feature-dependencies --feature group.version=x
""", masks=MASKS)  # fmt: skip


def asked(folder: Path) -> list[Call]:
    """Every call of `format` gets directories that nothing else uses, one set for each side."""
    found = []
    for number, (kind, flags) in enumerate((*WORKS, *REFUSED)):
        for name in NAMES:
            dirs = [f"{folder}/{name}-{number}"] + ([f"{folder}/{name}-{number}-b"] if kind == "two" else [])
            (folder / f"{name}-{number}.properties").write_text(KINDS[kind].format(dirs=",".join(dirs)))
        file = f"-c FOLDER/NAME-{number}.properties"
        lines = [f"storage format {file} {ID} {flags}"]
        if number < len(WORKS):
            again = [f"storage info {file}", *lines, f"{lines[0]} -g"]
            lines = [f"storage info {file}", *lines, *again]
        found += [Call(line, masks=MASKS, rows=kind == "two") for line in lines]
    other = lines_of_another_cluster()
    return [*found, *other, *REST]


def lines_of_another_cluster() -> list[Call]:
    return [
        Call("storage format -c FOLDER/NAME-0.properties -t another -g"),
        Call("storage format -c FOLDER/NAME-0.properties"),
        Call("storage format -t x"),
    ]


def test_storage(tmp_path: Path) -> None:
    found = differences(asked(tmp_path), OttlaServer(tmp_path / "unused"), tmp_path)
    assert not found, "\n".join(found)
