"""The Prometheus JMX exporter as a Java agent, from Maven: what Kafka's beans are called on existing dashboards."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

ARTIFACT = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"
# The naming of the exporter's widely copied rules for Kafka: lower case, meters as totals, percentiles as quantiles.
# Three labels (share partitions) and the beans of the group coordinator, which those rules do not foresee, likewise.
RULES = r"""
lowercaseOutputName: true
lowercaseOutputLabelNames: true
rules:
- pattern: kafka.coordinator.(\w+)<type=(.+), name=(.+)><>Value
  name: kafka_coordinator_$1_$2_$3
  type: GAUGE
- pattern: kafka.server<type=group-coordinator-metrics, (\w+)=(.+)><>(.+-count)
  name: kafka_server_group_coordinator_metrics_$3
  type: GAUGE
  labels: {"$1": "$2"}
- pattern: kafka.server<type=group-coordinator-metrics><>(.+-count)
  name: kafka_server_group_coordinator_metrics_$1
  type: GAUGE
- pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (\w+)=(.+), (\w+)=(.+), (\w+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels: {"$4": "$5", "$6": "$7", "$8": "$9"}
- pattern: kafka.(\w+)<type=(.+), name=(.+), (\w+)=(.+), (\w+)=(.+), (\w+)=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
  labels: {"$4": "$5", "$6": "$7", "$8": "$9"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (.+)=(.+), (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels: {"$4": "$5", "$6": "$7"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels: {"$4": "$5"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)PerSec\w*><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+), (.+)=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
  labels: {"$4": "$5", "$6": "$7"}
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
  labels: {"$4": "$5"}
- pattern: kafka.(\w+)<type=(.+), name=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.*)><>Count
  name: kafka_$1_$2_$3_count
  type: GAUGE
  labels: {"$4": "$5"}
- pattern: kafka.(\w+)<type=(.+), name=(.+), (.+)=(.*)><>(\d+)thPercentile
  name: kafka_$1_$2_$3
  type: GAUGE
  labels: {"$4": "$5", quantile: "0.$6"}
"""


@cache
def agent() -> Path:
    """The agent's jar; Unavailable where Maven cannot fetch it."""
    jar = cache_dir().with_name("ottla-jmx-exporter") / "agent.jar"
    with file_lock(cache_dir().with_name("ottla-jmx-exporter.lock")):
        if not jar.exists():
            _fetch(jar)
    return jar


def _fetch(jar: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("no mvn on PATH to fetch the JMX exporter with")
    jar.parent.mkdir(parents=True, exist_ok=True)
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={jar.parent}"]
    try:
        done = subprocess.run(
            [*command, "-Dmdep.stripVersion=true"], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("fetching the JMX exporter took longer than 120 s") from None
    found = next(iter(sorted(jar.parent.glob("jmx_prometheus_javaagent*.jar"))), None)
    if done.returncode or found is None:
        raise Unavailable(f"Maven could not fetch the JMX exporter: {(done.stdout + done.stderr).strip()[:200]}")
    found.rename(jar)
