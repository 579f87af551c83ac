"""The whole command against real Apache Kafka on both sides: small, but every part of a row is real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kafka_jars import Unavailable, fetch

ROOT = Path(__file__).parents[2]


@pytest.mark.interop
@pytest.mark.timeout(660)
def test_quick_rows_against_kafka_itself(tmp_path: Path) -> None:
    try:
        fetch()
    except Unavailable as error:
        pytest.skip(str(error))
    # "1 " leaves the four readers of one partition (written by ProducerPerformance) and one shape of raw frames.
    rows = ["--rows", "consume,requests", "--only", "1 ", "--bytes", "2000000", "--consume-bytes", "2000000"]
    sizes = [
        "--quick",
        "--seconds",
        "0.1",
        "--subject",
        "kafka",
        "--dir",
        str(tmp_path),
        "--results",
        str(tmp_path / "out"),
    ]
    command = [sys.executable, "-m", "bench", *rows, *sizes]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    (path,) = (tmp_path / "out").iterdir()
    result = json.loads(path.read_text())
    assert {row["load"] for row in result["rows"]} == {"consume", "requests"}
    assert all(
        value > 0
        for row in result["rows"]
        if row["quantity"] in {"rate", "requests"}
        for value in row["median"].values()
    )
    assert result["machine"]["cores"] >= 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"], "data directories are removed"
