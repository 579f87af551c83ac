"""Every tool that `ottla shims` writes: its name without `kafka-` and `.sh`, and the module that is it."""

from __future__ import annotations

TOOLS = {
    "cluster": "cluster",
    "configs": "configs",
    "console-consumer": "console_consumer",
    "console-producer": "console_producer",
    "consumer-groups": "consumer_groups",
    "delete-records": "delete_records",
    "features": "features",
    "get-offsets": "get_offsets",
    "log-dirs": "log_dirs",
    "server-start": "server_start",
    "server-stop": "server_stop",
    "storage": "storage",
    "topics": "topics",
}


def tool_name(program: str) -> str:
    """`kafka-topics.sh`, `kafka-topics` or `topics` as `topics`."""
    name = program.rpartition("/")[2].removesuffix(".sh")
    return name.removeprefix("kafka-")
