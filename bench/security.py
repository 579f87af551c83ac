"""What security costs: produce throughput plain, over TLS, with ACLs, encrypted at rest; Ottla and Apache Kafka.

    python -m bench.security [--megabytes 200] [--rounds 3] [--ottla-only]

Rounds alternate between the variants, so that what else the machine does falls on all of them; the best round counts.
The rows are `tls`, `acls` and `encrypted`, each as a share of the same server's plain throughput; the server's CPU time
per GB says the same where the machine is busy with other things.
"""

from __future__ import annotations

import argparse
import base64
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import BENCH_JVM, ApacheKafka, free_port

VARIANTS = ("plain", "tls", "acls", "encrypted")
RECORD_BYTES = 1000
TOPIC = "cost"


def properties(variant: str, folder: Path, server: ApacheKafka) -> dict[str, str]:
    """On top of one plain node; the TLS listener stands beside the plain one."""
    if variant == "acls":
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:nobody",
            "allow.everyone.if.no.acl.found": "true",
        }
    if variant == "encrypted":
        key = folder / "master"
        key.write_text(f"bench:{base64.b64encode(bytes(32)).decode()}\n")
        return {"ottla.encryption.master.key.file": str(key)}
    if variant == "tls":
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "key.pem"))
        port = free_port()
        (folder / "tls-port").write_text(str(port))
        listeners = f"PLAINTEXT://127.0.0.1:{server.port},SSL://127.0.0.1:{port}"
        return {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{server.controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "key.pem"),
        }
    return {}


@contextmanager
def running(kind: str, variant: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The client's settings of a fresh server, and its process."""
    with tempfile.TemporaryDirectory(prefix="bench-security-") as name:
        folder = Path(name)
        server = OttlaServer(folder) if kind == "ottla" else ApacheKafka(folder, jvm_options=BENCH_JVM)
        server.properties |= properties(variant, folder, server)
        server.start()
        try:
            settings: dict[str, Any] = {"bootstrap.servers": server.bootstrap_servers}
            if variant == "tls":
                port = (folder / "tls-port").read_text()
                settings = {
                    "bootstrap.servers": f"127.0.0.1:{port}",
                    "security.protocol": "SSL",
                    "ssl.ca.location": str(folder / "ca.pem"),
                }
            admin = AdminClient(settings)
            admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(30)
            yield settings, server.pid
        finally:
            server.kill()


def throughput(settings: dict[str, Any], megabytes: int) -> float:
    """MB/s of acks=all, 1 KB records."""
    producer = Producer({**settings, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 200_000})
    value = b"v" * RECORD_BYTES
    started = time.perf_counter()
    for number in range(megabytes * 1_000_000 // RECORD_BYTES):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("records were not delivered")
    return megabytes / (time.perf_counter() - started)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ottla-only", action="store_true")
    options = parser.parse_args()
    kinds = ["ottla"] if options.ottla_only else ["ottla", "kafka"]
    best: dict[tuple[str, str], float] = {}
    cpu: dict[tuple[str, str], float] = {}
    with ExitStack() as stack:
        servers = {
            (kind, variant): stack.enter_context(running(kind, variant))
            for kind in kinds
            for variant in VARIANTS
            if kind == "ottla" or variant != "encrypted"
        }
        for settings, _ in servers.values():
            throughput(settings, max(options.megabytes // 10, 1))  # warm
        for _ in range(options.rounds):
            for key, (settings, pid) in servers.items():
                before = cpu_seconds(pid)
                best[key] = max(best.get(key, 0.0), throughput(settings, options.megabytes))
                spent = (cpu_seconds(pid) - before) / options.megabytes * 1000
                cpu[key] = min(cpu.get(key, spent), spent)
    print(f"{'server':8} {'variant':10} {'MB/s':>8} {'of plain':>9} {'CPU s/GB':>9} {'of plain':>9}")
    for key, speed in best.items():
        plain = (key[0], "plain")
        print(
            f"{key[0]:8} {key[1]:10} {speed:8.1f} {speed / best[plain]:9.0%} {cpu[key]:9.2f} {cpu[key] / cpu[plain]:9.0%}"
        )


if __name__ == "__main__":
    main()
