"""A real session: Spark has a setting that looks secret, and the JVM's command line does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, subprocess
from ottla.pipelines.session import spark
session = spark("local[1]", low_footprint=True, config={
    "spark.hadoop.fs.s3a.secret.key": "s3cret word=1", "spark.hadoop.plain": "seen"})
conf = session.sparkContext.getConf()
print("conf", conf.get("spark.hadoop.fs.s3a.secret.key"), conf.get("spark.hadoop.plain"))
shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(session.sparkContext._gateway.proc.pid)],
                       capture_output=True, text=True).stdout
print("shown", "spark.hadoop.plain=seen" in shown, "s3cret" in shown)
session.stop()
"""


@pytest.mark.timeout(300)
def test_a_secret_of_spark_is_not_on_the_command_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=280, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["conf s3cret word=1 seen", "shown True False"], done.stdout + done.stderr
