"""Apache Kafka's DumpLogSegments over a whole data directory, and the same of our own reading of the listing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.support.kafka_tools import DumpLogSegments, Result

Tool = Callable[..., Result]
TROUBLE = re.compile(
    r"mismatch|invalid|exception|fail|corrupt|unable|could not|not found|cannot|isvalid: false|error", re.IGNORECASE
)


def dump(tool: Tool, files: list[Path], *flags: str) -> str:
    """What the tool prints about `files`; AssertionError when it finds anything wrong."""
    done = tool(DumpLogSegments, "--files", ",".join(map(str, files)), *flags)
    lines = (done.stdout + done.stderr).splitlines()
    trouble = [line for line in lines if TROUBLE.search(line) and "payload:" not in line]
    assert done.returncode == 0, done.stderr
    assert not trouble, trouble[:10]
    return done.stdout


def dump_everything(tool: Tool, data: Path) -> dict[str, str]:
    """Every file of every kind, as deep as the tool goes: kind -> what it printed."""
    partitions = [d for d in data.iterdir() if d.is_dir() and not d.name.endswith(("-delete", "-stray"))]
    plain = [d for d in partitions if not d.name.startswith("__")]
    metadata = data / "__cluster_metadata-0"
    found = {
        "log": dump(tool, files(plain, "log"), "--deep-iteration", "--print-data-log"),
        "index": dump(tool, files(partitions, "index"), "--index-sanity-check"),
        "verify": dump(tool, files(partitions, "index") + files(partitions, "timeindex"), "--verify-index-only"),
        "timeindex": dump(tool, files(partitions, "timeindex")),
        "snapshot": dump(tool, files(partitions, "snapshot")),
        "metadata": dump(tool, files([metadata], "log"), "--cluster-metadata-decoder", "--skip-record-metadata"),
        "offsets": dump(
            tool, files([d for d in partitions if d.name.startswith("__consumer_offsets-")], "log"), "--offsets-decoder"
        ),
    }
    checkpoints = files([metadata], "checkpoint")
    if checkpoints:
        found["checkpoint"] = dump(tool, checkpoints, "--cluster-metadata-decoder")
    transactions = files(partitions, "txnindex")
    if transactions:
        found["txnindex"] = dump(tool, transactions)
    return found


def files(directories: list[Path], extension: str) -> list[Path]:
    """Not empty ones: the tool maps an index into memory, and Kafka itself leaves no empty index to map."""
    return sorted(file for d in directories for file in d.glob(f"*.{extension}") if file.stat().st_size)
