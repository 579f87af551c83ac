"""What security costs: produce and fetch plain, over TLS, with ACLs, encrypted at rest; Ottla and Apache Kafka.

    python -m bench.security [--megabytes 200] [--rounds 3] [--ottla-only] [--variants plain,tls]

Rounds alternate between the servers, so that what else the machine does falls on all of them; the median round counts.
Each row is a share of the same server's plain figure. The server's CPU seconds per GB say the same where the machine is
busy with other things. Some 4 minutes with three rounds.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import BENCH_JVM, ApacheKafka
from tests.support.ports import free_port

from bench.process import cpu_seconds

VARIANTS = ("plain", "tls", "acls", "encrypted")
RECORD_BYTES = 1000
PARTITIONS = 4
TOPIC = "cost"


def write_key(path: Path, authority: trustme.CA) -> None:
    """Key and chain; the key as PKCS#8, the only form that Kafka's PEM key store reads."""
    certificate = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))


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
        write_key(folder / "key.pem", authority)
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
            settings: dict[str, Any] = {"bootstrap.servers": server.bootstrap_servers, "log_level": 2}
            if variant == "tls":
                port = (folder / "tls-port").read_text()
                settings = {
                    "bootstrap.servers": f"127.0.0.1:{port}",
                    "security.protocol": "SSL",
                    "log_level": 2,
                    "ssl.ca.location": str(folder / "ca.pem"),
                }
            admin = AdminClient(settings)
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
            if variant == "acls":
                for future in admin.create_acls(acls()).values():
                    future.result(30)
            yield settings, server.pid
        finally:
            server.kill()


def acls() -> list[AclBinding]:
    """The client's own, and five hundred of others that begin like the topic's name."""

    def allow(name: str, pattern: ResourcePatternType, principal: str) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC, name, pattern, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW
        )  # fmt: skip

    own = allow(TOPIC, ResourcePatternType.LITERAL, "User:ANONYMOUS")
    return [own, *(allow(TOPIC[:2], ResourcePatternType.PREFIXED, f"User:other-{number}") for number in range(500))]


def produce(settings: dict[str, Any], megabytes: int) -> None:
    """acks=all, 1 KB records."""
    producer = Producer({**settings, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 200_000})
    value = b"v" * RECORD_BYTES
    for number in range(megabytes * 1_000_000 // RECORD_BYTES):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("records were not delivered")


def fetch(settings: dict[str, Any], megabytes: int) -> None:
    consumer = Consumer({**settings, "group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    left, deadline = megabytes * 1_000_000 // RECORD_BYTES, time.monotonic() + 300
    while left > 0:
        left -= len(consumer.consume(5_000, 1.0))
        if time.monotonic() > deadline:
            raise RuntimeError("records were not read")
    consumer.close()


LOADS: dict[str, Callable[[dict[str, Any], int], None]] = {"produce": produce, "fetch": fetch}


def measured(load: str, settings: dict[str, Any], pid: int, megabytes: int) -> tuple[float, float]:
    """MB/s, and the server's CPU seconds per GB."""
    before, started = cpu_seconds(pid), time.perf_counter()
    LOADS[load](settings, megabytes)
    took = time.perf_counter() - started
    return megabytes / took, (cpu_seconds(pid) - before) / megabytes * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ottla-only", action="store_true")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    options = parser.parse_args()
    kinds = ["ottla"] if options.ottla_only else ["ottla", "kafka"]
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    with ExitStack() as stack:
        servers = {
            (kind, variant): stack.enter_context(running(kind, variant))
            for kind in kinds
            for variant in options.variants.split(",")
            if kind == "ottla" or variant != "encrypted"
        }
        for settings, _ in servers.values():
            produce(settings, max(options.megabytes // 4, 1))  # warm
        for _ in range(options.rounds):
            for (kind, variant), (settings, pid) in servers.items():
                for load in LOADS:
                    found[load, kind, variant].append(measured(load, settings, pid, options.megabytes))
    print(f"{'load':8} {'server':7} {'variant':10} {'MB/s':>8} {'of plain':>9} {'CPU s/GB':>9} {'of plain':>9}")
    for (load, kind, variant), rounds in sorted(
        found.items(), key=lambda row: (row[0][0] != "produce", row[0][1] != "ottla")
    ):
        speed, cpu = (median(column) for column in zip(*rounds, strict=True))
        plain = found.get((load, kind, "plain"), rounds)
        of_speed, of_cpu = (median(column) for column in zip(*plain, strict=True))
        print(f"{load:8} {kind:7} {variant:10} {speed:8.1f} {speed / of_speed:9.0%} {cpu:9.2f} {cpu / of_cpu:9.0%}")


if __name__ == "__main__":
    main()
