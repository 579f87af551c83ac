"""Runs a tool twice, Apache Kafka's own and ours, and makes what they print comparable.

Dropped: Java's stack traces and log lines, the help tables (their words are ours), ids and times. Columns stay. A mask that
ends in a line's end takes the whole line away.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.cli.kafka.runner import run
from tests.support.kafka_tools import run_tool

JAVA = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "storage": "kafka.tools.StorageTool",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
_NOISE = re.compile(
    r"\s+at |Caused by|\s+\.\.\. \d+ more|\[[^\]]+\] (ERROR|WARN|INFO)|(ERROR|WARN) |\s*Suppressed:|The consumer rebalance protocol"
)
_EXCEPTION = re.compile(r"[\w.$]+(?:Exception|Error)(?:: (.*))?$")
_HELP = re.compile(r"Option .*Description|usage: ")


_OPTION_SETS = re.compile(r"\[[\w-]+\](?:, \[[\w-]+\])+")
"""Java prints sets of options in another order each time."""


def _sorted_options(match: re.Match[str]) -> str:
    return ", ".join(sorted(match[0].split(", ")))


class Printed(NamedTuple):
    code: int
    out: str
    err: str


def ours(tool: str, arguments: Sequence[str], stdin: str = "") -> Printed:
    """In this process, which saves an interpreter's start each time; console tools need one of their own."""
    if tool.startswith("console"):
        return ours_apart(tool, arguments, stdin)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(tool, list(arguments))
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Printed(code, *texts)


def ours_apart(tool: str, arguments: Sequence[str], stdin: str = "", timeout: float = 50) -> Printed:
    command = [sys.executable, "-m", "ottla.cli.kafka", tool, *arguments]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False, env=environment
    )
    return Printed(done.returncode, done.stdout, done.stderr)


def javas(tool: str, arguments: Sequence[str], stdin: str = "") -> Printed:
    done = run_tool(JAVA[tool], *arguments, input=stdin, timeout=50)
    return Printed(done.returncode, done.stdout, done.stderr)


def comparable(printed: Printed, *, rows: bool = False, masks: Sequence[str] = (), json_lines: bool = False) -> Printed:
    assert "Traceback" not in printed.err, printed.err
    out = _words(_sorted_fields(printed.out) if json_lines else printed.out, masks)
    err = re.sub(r"\s+", " ", _words(printed.err, masks, keep_exception=not out.strip())).strip()
    err = re.sub(r"(?<=[\w-])- (?=\w)", "-", err.replace("-- ", "--"))  # Java breaks lines inside flags and paths
    if rows:
        out = "\n".join(sorted(line.strip() for line in out.splitlines()))
    return Printed(printed.code, out.rstrip(), err)


def _sorted_fields(text: str) -> str:
    """JSON lines with their fields in one order; Java's is another one in each JVM."""
    lines = [
        json.dumps(json.loads(line), sort_keys=True) if line.startswith("{") else line for line in text.splitlines()
    ]
    return "\n".join(lines)


def _words(text: str, masks: Sequence[str], *, keep_exception: bool = False) -> str:
    kept: list[str] = []
    exceptions: list[str] = []
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if _HELP.match(line):
            kept.append("<help>")
            while index < len(lines) and not re.match(r"[\w.-]+: +error:", lines[index]):
                index += 1
            continue
        if match := _EXCEPTION.match(line):
            exceptions.append(match[1] or "")
        elif not _NOISE.match(line):
            kept.append(line)
    if keep_exception and not any(line.strip() for line in kept) and exceptions:
        kept = [re.sub(r"^(?:[\w.$]+Exception: )+", "", exceptions[0])]
    joined = _OPTION_SETS.sub(_sorted_options, "\n".join(kept))
    for mask in masks:
        joined = re.sub(mask, "" if mask.endswith(r"\n") else "MASKED", joined, flags=re.MULTILINE)
    return joined
