"""A node with encryption at rest: two master keys, two generations of segments, one key's values erased."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.robustness.server_process import ServerProcess, ottla
from tests.upgrade import observations as observe
from tests.upgrade.observations import Json
from tests.upgrade.rows import START_MS, Record, send
from tests.upgrade.scenes.steps import FOLDER, SMALL, await_true, make_topic

NEEDLE = "NEEDLE-IN-PLAIN"
MASTER = "ottla.encryption.master.key.file"
MINUTE_MS = 60_000


def record(folder: Path, work: Path) -> Json:
    server = ServerProcess(work, properties=SMALL | {MASTER: str(folder / "master")}, log_dirs=[folder / "data"])
    (folder / "master").write_text(_line("m1"))
    with server:
        with observe.connected(server.bootstrap_servers) as cluster:
            make_topic(cluster, "secret", 1, {"segment.ms": "60000"})
            make_topic(cluster, "people", 1, {"segment.ms": "60000"})
        _write(server.bootstrap_servers, 0)
        server.stop()
        (folder / "master").write_text(_line("m2") + _line("m1"))
        server.start()
        servers = server.bootstrap_servers
        _write(servers, 10)
        done = ottla("topic", "forget", "people", "--key", "ada", "--yes", "--bootstrap-servers", servers)
        assert done.returncode == 0, done.stderr
        with observe.connected(servers) as cluster:
            topics = observe.topics(cluster)
            await_true(lambda: _erased(servers), "the values of `ada` are still readable")
            manifest = {
                "properties": SMALL | {MASTER: f"{FOLDER}/master"},
                "needle": NEEDLE,
                "erased_key": "ada",
                "cluster_id": observe.cluster_id(cluster),
                "topics": topics,
                "records": observe.records(servers, observe.places(topics)),
            }
            code, _ = server.stop()
            assert code == 0, server.log_text()
    return manifest


def _line(name: str) -> str:
    """One master key as `ID:BASE64`; a key that protects nothing but these records."""
    return f"{name}:{base64.b64encode(name.encode() * 16).decode()}\n"


def _write(servers: str, first: int) -> None:
    for n in range(first, first + 4):
        time_ms = START_MS + 2 * n * MINUTE_MS
        headers = [("h", f"{NEEDLE}-header".encode())]
        send(servers, "secret", [Record(b"key-%d" % n, f"{NEEDLE} {n}".encode(), time_ms, headers)])
        people = [Record(key, f"{NEEDLE} of {key.decode()} {n}".encode(), time_ms) for key in (b"ada", b"bob")]
        send(servers, "people", people)


def _erased(servers: str) -> bool:
    """The active segment is erased when it is closed; the others soon."""
    rows = observe.records(servers, [("people", 0)])["people-0"]["rows"]
    return all(row[4] is None for row in rows if row[3] == "ada")
