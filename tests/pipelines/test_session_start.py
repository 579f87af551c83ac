"""A real session: a setting that looks secret is not on the JVM's command line, and steps import from their own folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.pipelines.session import _CONFIG, state_partitions

SCRIPT = """
import subprocess, sys
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.session import spark
load_pipelines(sys.argv[1])
session = spark("local[1]", low_footprint=True, config={
    "spark.hadoop.fs.s3a.secret.key": "s3cret word=1", "spark.hadoop.plain": "seen"})
conf = session.sparkContext.getConf()
print("conf", conf.get("spark.hadoop.fs.s3a.secret.key"), conf.get("spark.hadoop.plain"))
shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(session.sparkContext._gateway.proc.pid)],
                       capture_output=True, text=True).stdout
print("shown", "spark.hadoop.plain=seen" in shown, "s3cret" in shown)
from my_steps import twice  # pickled by its name: the worker imports it too
from pyspark.sql.functions import udf
print("steps", session.range(1, 2).select(udf(twice, "long")("id")).collect()[0][0])
session.stop()
"""


@pytest.mark.timeout(300)
def test_a_secret_is_not_on_the_command_line_and_steps_are_found(tmp_path: Path) -> None:
    steps, here = tmp_path / "steps", tmp_path / "here"
    steps.mkdir()
    here.mkdir()
    (steps / "my_steps.py").write_text("def twice(x):\n    return 2 * x\n")
    (steps / "shop.py").write_text(
        "import my_steps\nfrom ottla.pipelines.pipeline import Pipeline\nshop = Pipeline('shop')\n"
    )
    for name in ("json", "pyspark", "my_steps"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(steps / "shop.py")],
        capture_output=True, text=True, check=False, timeout=280, cwd=here,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["conf s3cret word=1 seen", "shown True False", "steps 2"], done.stderr[-2000:]
    assert not (tmp_path / "ran").exists()


def test_ui_metrics_and_adaptive_execution_are_on() -> None:
    """Spark's own defaults hold but for streams without state: their tasks carry markers and must not be merged."""
    assert _CONFIG["spark.sql.streaming.metricsEnabled"] == "true"
    assert [name for name, value in _CONFIG.items() if name.endswith("enabled") and value == "false"] == [
        "spark.sql.adaptive.streaming.stateless.enabled"
    ]
    hidden = re.compile(_CONFIG["spark.redaction.regex"]), re.compile(_CONFIG["spark.sql.redaction.options.regex"])
    assert all(words.search("kafka.sasl.jaas.config") for words in hidden)


@pytest.mark.parametrize(
    ("settings", "present_cores", "partitions"),
    [
        ({"spark.executor.instances": "6", "spark.executor.cores": "4"}, 2, 24),
        ({"spark.cores.max": "12"}, 2, 12),
        ({"spark.executor.cores": "4"}, 20, 20),
        ({}, 2, 4),
    ],
)
def test_state_partitions_follow_the_cluster(settings: dict[str, str], present_cores: int, partitions: int) -> None:
    """Executors may not be there yet when the session starts: what was asked for counts first."""
    context = SimpleNamespace(getConf=lambda: settings, defaultParallelism=present_cores)
    assert state_partitions(context) == partitions  # type: ignore[arg-type]
