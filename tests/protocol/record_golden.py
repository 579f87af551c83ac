"""Record golden bytes from real Apache Kafka, by hand: `python -m tests.protocol.record_golden` (minutes, needs java).

Two nodes, both voters, talk to each other and to their clients only through recording proxies. What they said goes to
golden/frames.txt ("request|response api-key version hex"), what they stored to golden/records.txt ("name version hex").
golden/messages.txt ("name version digest hex") holds every message and version as Kafka's own classes write it.
"""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from tests.protocol import golden_records, golden_traffic
from tests.protocol.java_oracle import ask, digest
from tests.protocol.message_values import NAMES, message_class, random_message, versions
from tests.protocol.recording_proxy import Proxy, Recorder
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port

GOLDEN = Path(__file__).with_name("golden")
PER_RECORD = 2


def nodes(root: Path, recorder: Recorder) -> tuple[list[ApacheKafka], list[int], list[int], list[Proxy]]:
    fronts, quorum = [free_port(), free_port()], [free_port(), free_port()]
    found, proxies = [], []
    for n in (0, 1):
        kafka = ApacheKafka(root / str(n + 1))
        kafka.properties |= {
            "node.id": str(n + 1),
            "controller.quorum.voters": ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(quorum)),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{fronts[n]},CONTROLLER://127.0.0.1:{quorum[n]}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "metadata.log.max.record.bytes.between.snapshots": "3000",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "2",
            "share.coordinator.state.topic.num.partitions": "2",
        }
        found.append(kafka)
        proxies += [Proxy(recorder, fronts[n], kafka.port), Proxy(recorder, quorum[n], kafka.controller_port)]
    return found, fronts, quorum, proxies


def traffic(fronts: list[int], quorum: list[int], root: Path) -> None:
    bootstrap = f"127.0.0.1:{fronts[0]}"
    for name, call in {
        "confluent-kafka": lambda: golden_traffic.confluent(bootstrap),
        "aiokafka": lambda: golden_traffic.aio(bootstrap),
        "kafka-python": lambda: golden_traffic.kafka_python(bootstrap, None),
        "kafka-python as 1.0": lambda: golden_traffic.kafka_python(bootstrap, (1, 0)),
        "kafka-python as 2.0": lambda: golden_traffic.kafka_python(bootstrap, (2, 0)),
        "kafka-python as 2.3": lambda: golden_traffic.kafka_python(bootstrap, (2, 3)),
        "kafka-python as 2.6": lambda: golden_traffic.kafka_python(bootstrap, (2, 6)),
        "Kafka's tools": lambda: golden_traffic.java_tools(bootstrap),
        "reassign": lambda: golden_traffic.reassign(bootstrap, root),
        "sweep of the broker": lambda: golden_traffic.sweep(fronts[1], "broker"),
        "sweep of the controller": lambda: golden_traffic.sweep(quorum[1], "controller"),
    }.items():
        started = time.monotonic()
        golden_traffic.step(call)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


def write_messages() -> None:
    """One value of every message and version, in the bytes and the reading (a digest of it) of Kafka's own classes."""
    random = Random(431)
    questions = []
    for name in NAMES:
        cls = message_class(name)
        for version in versions(cls):
            drawn = [random_message(random, cls, version, nulls=True).to_bytes(version) for _ in range(6)]
            questions.append(
                (name, version, max(drawn, key=lambda raw: (len(raw) < 300, len(raw) if len(raw) < 300 else -len(raw))))
            )
    rows = []
    for (name, version, _), answer in zip(questions, ask(questions), strict=True):
        text, raw, left = answer.rsplit(" ", 2)
        if answer.startswith("!") or left != "0":
            raise ValueError(f"{name} v{version}: {answer}")
        rows.append(f"{name} {version} {digest(text)} {raw or '-'}")
    (GOLDEN / "messages.txt").write_text("\n".join(rows) + "\n")
    print(f"{len(rows)} messages")


def main() -> None:
    root = Path("/tmp/kafka-golden")  # it is in some of the bytes
    shutil.rmtree(root, ignore_errors=True)
    recorder = Recorder()
    kafkas, fronts, quorum, proxies = nodes(root, recorder)
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda kafka: kafka.start(90), kafkas))
        traffic(fronts, quorum, root)
        kafkas[1].restart()
        time.sleep(3)
    finally:
        for kafka in kafkas:
            kafka.stop(10)
        for proxy in proxies:
            proxy.close()
    write(root, recorder)
    write_messages()
    shutil.rmtree(root, ignore_errors=True)


def write(root: Path, recorder: Recorder) -> None:
    GOLDEN.mkdir(exist_ok=True)
    frames = [f"{what} {key} {version} {frame.hex()}" for (what, key, version), frame in recorder.frames()]
    (GOLDEN / "frames.txt").write_text("\n".join(frames) + "\n")
    kept: dict[tuple[str, int], set[bytes]] = {}
    for node in sorted(root.iterdir()):
        if not (node / "data").is_dir():
            continue
        for name, version, raw in golden_records.walk(node / "data"):
            few = kept.setdefault((name, version), set())
            few.add(raw)
            if len(few) > PER_RECORD:
                few.remove(min(few, key=lambda r: (len(r), r)))
    records = [
        f"{name} {version} {raw.hex() or '-'}" for (name, version), few in sorted(kept.items()) for raw in sorted(few)
    ]
    (GOLDEN / "records.txt").write_text("\n".join(records) + "\n")
    print(f"{len(frames)} frames, {len(records)} records")


if __name__ == "__main__":
    sys.exit(main())
