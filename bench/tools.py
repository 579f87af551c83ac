"""How long a command takes from Return to the prompt: Kafka's tools in Java, ours, and `ottla` itself.

    python -m bench.tools [--rounds 5] [--ours-only]

Each line is a whole process, started as a shell starts it, against one Ottla node. Rounds alternate between Java's and
ours, so that what else the machine does falls on both; medians. Java gets the options of Kafka's own scripts (256 MB heap).
Some 100 s with five rounds on two cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from tests.cli.tools import JAVA
from tests.interop.ottla_server import OttlaServer
from tests.support.kafka_tools import jvm_command

from bench.machine import facts, load_average
from ottla.cli.verbs.shims import write_shims

TARGET_S = 0.3
TOOLS = (
    "topics --bootstrap-server SERVER --list",
    "topics --bootstrap-server SERVER --describe --topic t",
    "configs --bootstrap-server SERVER --topic t --describe",
    "consumer-groups --bootstrap-server SERVER --list",
    "get-offsets --bootstrap-server SERVER --topic t",
    "metadata-quorum --bootstrap-server SERVER describe --status",
    "storage random-uuid",
)
OWN = ("ottla --help", "ottla topic list -b SERVER")
SCRIPT_JVM = ("-Xmx256M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")


def seconds(command: list[str]) -> tuple[float, float]:
    """By the clock and of CPU."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    elapsed, after = time.perf_counter() - began, os.times()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return elapsed, used


def measured(
    server: str, shims: Path, rounds: int, *, with_java: bool
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(rounds):
        for line in TOOLS:
            tool, *words = line.replace("SERVER", server).split()
            found[line, "ours"].append(seconds([str(shims / f"kafka-{tool}.sh"), *words]))
            if with_java:
                found[line, "java"].append(seconds(jvm_command(SCRIPT_JVM, JAVA[tool], *words)))
        for line in OWN:
            words = line.replace("SERVER", server).split()[1:]
            found[line, "ours"].append(seconds([str(Path(sys.executable).with_name("ottla")), *words]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours-only", action="store_true")
    options = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="bench-tools-") as folder:
        shims = Path(folder) / "bin"
        write_shims(shims)
        node = OttlaServer(Path(folder) / "node", properties={"offsets.topic.num.partitions": "4"})
        (Path(folder) / "node").mkdir()
        node.start()
        try:
            server = node.bootstrap_servers
            seconds([str(shims / "kafka-topics.sh"), "--bootstrap-server", server, "--create", "--topic", "t"])
            found = measured(server, shims, options.rounds, with_java=not options.ours_only)
        finally:
            node.stop()
    machine = facts()
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {machine['cores']} cores, {machine['cpu']}, load {before[0]} before"
    )
    print(f"{'command':68} {'ours s':>7} {'CPU s':>6} {'java s':>7} {'CPU s':>6} {'times':>6}  <= {TARGET_S} s")
    for line in (*TOOLS, *OWN):
        ours, own_cpu = (median(column) for column in zip(*found[line, "ours"], strict=True))
        name = line if line.startswith("ottla") else f"kafka-{line.replace(' ', '.sh ', 1)}"
        rest = f"{'-':>7} {'-':>6} {'-':>6}"
        if (line, "java") in found:
            java, java_cpu = (median(column) for column in zip(*found[line, "java"], strict=True))
            rest = f"{java:7.2f} {java_cpu:6.2f} {java / ours:6.1f}"
        print(f"{name:68} {ours:7.3f} {own_cpu:6.2f} {rest}  {'met' if ours <= TARGET_S else 'SHORT'}")


if __name__ == "__main__":
    main()
