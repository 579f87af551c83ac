"""OTTLA_LOG_FORMAT=json: every line of a node's log is a JSON object with its event and its facts."""

from __future__ import annotations

import json
import os
import subprocess

from tests.interop.ottla_server import OTTLA, OttlaServer, run_ottla, write_config
from tests.support.apache_kafka import CLUSTER_ID


def test_a_node_writes_json_lines(tmp_path) -> None:
    config = write_config(OttlaServer(tmp_path / "node"))
    run_ottla("storage", "format", "-t", CLUSTER_ID, "-c", str(config))
    with subprocess.Popen(
        [*OTTLA, "server", "start", str(config)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "OTTLA_LOG_FORMAT": "json"},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        events = []
        for line in process.stderr:
            events.append(json.loads(line))
            if events[-1]["event"] == "node.started":
                process.terminate()
    assert {"timestamp", "level", "event", "logger"} <= set(events[0])
    started = next(event for event in events if event["event"] == "node.started")
    assert started["cluster"] == CLUSTER_ID
    assert started["logger"] == "ottla.server.node"
