"""`python -m ottla.pipelines.submit FILE`, or the same module as the program of spark-submit.

Under spark-submit the master and all `--conf` of spark-submit hold; the words behind the program are those of this module.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence

from ottla.model.user_error import UserError
from ottla.pipelines.build import RunSettings
from ottla.pipelines.checkpoints import checkpoint_root
from ottla.pipelines.execution import refuse_several, run_pipelines
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.session import has_data_source, spark, submitted_session


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="ottla.pipelines.submit", description="Run a pipeline file on a Spark cluster.")
    made.add_argument("file", help="pipeline file")
    made.add_argument("-b", "--bootstrap-servers", required=True, help="brokers, as HOST:PORT,...")
    made.add_argument(
        "--checkpoints", required=True, help="folder for offsets and state: a path, or s3a, gs, abfs, hdfs"
    )
    made.add_argument("--name", help="use only the pipeline of this name")
    made.add_argument("--master", help="Spark master (default: the master of spark-submit)")
    made.add_argument("--remote", help="Spark Connect server, as sc://HOST:15002")
    made.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="Spark setting; may be repeated"
    )
    made.add_argument(
        "-X",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Kafka client property; may be repeated",
    )
    made.add_argument("--py-files", default="", metavar="FILE,...", help="more .py or .zip files for the executors")
    made.add_argument("--archive", metavar="FILE", help="packed Python environment for the executors (.tar.gz)")
    made.add_argument(
        "--format", choices=("ottla", "kafka"), help="data source of topics (default: by PySpark's version)"
    )
    made.add_argument("--at-least-once", action="store_true", help="write to topics without transactions")
    made.add_argument(
        "--lineage", metavar="WHERE", help="send OpenLineage events to http(s)://..., file:PATH or topic:NAME"
    )
    made.add_argument("--once", action="store_true", help="process the records that exist now, then stop")
    return made


def main(words: Sequence[str] | None = None) -> None:
    options = parser().parse_args(words)
    config = _named("--conf", options.conf)
    py_files = [path for path in options.py_files.split(",") if path]
    pipelines = [
        pipeline for pipeline in load_pipelines(options.file) if options.name is None or pipeline.name == options.name
    ]
    if not pipelines:
        raise UserError(f"{options.file} has no pipeline {options.name!r}")
    refuse_several(options.file, pipelines, once=options.once)
    settings = RunSettings(
        bootstrap_servers=options.bootstrap_servers,
        checkpoints=checkpoint_root(options.checkpoints),
        client=_named("--property", options.property),
        exactly_once=not options.at_least_once,
        source_format=options.format or ("ottla" if has_data_source() else "kafka"),
    )
    name, archive = pipelines[0].name, options.archive
    remote = options.remote or (None if options.master else submitted_remote(os.environ))
    if options.master or remote:
        session = spark(options.master, remote=remote, name=name, config=config, py_files=py_files, archive=archive)
    else:
        session = submitted_session(name, config, py_files, archive)
    run_pipelines(session, pipelines, settings, once=options.once, quiet=True, lineage=options.lineage)


def submitted_remote(environment: Mapping[str, str]) -> str | None:
    """The address of spark-submit --remote, which passes its settings as JSON in numbered parts (pyspark 4.3)."""
    parts = range(int(environment.get("PYSPARK_REMOTE_INIT_CONF_LEN", "0")))
    settings = json.loads("".join(environment[f"PYSPARK_REMOTE_INIT_CONF_{part}"] for part in parts) or "{}")
    remote: str | None = settings.get("spark.remote") or environment.get("SPARK_REMOTE")
    return remote


def _named(option: str, texts: Sequence[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UserError(f"{option} {text!r} is not NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in texts)}


if __name__ == "__main__":
    # Python puts the folder of a program first on the path of modules: a step's `import options` would find a module of ours.
    sys.path[:] = [
        folder for folder in sys.path if os.path.abspath(folder) != os.path.dirname(os.path.abspath(__file__))
    ]
    try:
        main()
    except UserError as problem:
        sys.exit(f"ottla: {problem}")
