"""Facts about the machine, so that a number is never read without them. No host name: results are public."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.support.kafka_jars import java


def _first(path: str, prefix: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(prefix):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown"


def _java() -> str:
    done = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=30, check=False)
    return (done.stderr or done.stdout).partition("\n")[0]


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def load_average() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def cores() -> int:
    """Those that this process may use; macOS does not limit a process to some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def facts() -> dict[str, Any]:
    memory = _first("/proc/meminfo", "MemTotal").split()[0]
    return {
        "cores": cores(),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "memory_gb": round(int(memory) * 1024 / 1e9, 1) if memory.isdigit() else None,
        "kernel": platform.release(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": _java(),
        "uvloop": _package("uvloop"),
        "confluent_kafka": _package("confluent-kafka"),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def tag() -> str:
    """A short name of the kind of machine, for the name of the result file."""
    return f"{cores()}cpu-{platform.machine()}"


def raise_open_files() -> None:
    """5,000 connections and 10,000 partitions need more descriptors than the usual soft limit; children inherit it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
