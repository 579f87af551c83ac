"""Options that the verbs of `ottla pipeline` share, and the pipelines that they choose from a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.options.client_options import property_option, servers_option
from ottla.cli.options.profile_option import profiled
from ottla.cli.options.settings_file import settings_option

if TYPE_CHECKING:
    from ottla.pipelines.pipeline import Pipeline

Command = TypeVar("Command", bound=Callable[..., Any])

CHECKPOINTS = click.option(
    "--checkpoints", metavar="DIR", help="Directory or URI for offsets and state (default: in --state)."
)
SPARK_SETTINGS = click.option(
    "--conf", "spark_settings", multiple=True, metavar="NAME=VALUE", help="Spark setting; may be repeated."
)
SUFFIX = click.option("--suffix", default="", help="Suffix of the outputs, as given to `backfill` (default: none).")
STATE = click.option(
    "--state",
    metavar="DIR",
    help="Directory for status, log and checkpoints (default: $OTTLA_STATE or .ottla/pipelines).",
)


def run_options(command: Command) -> Command:
    for option in (
        settings_option("master: ..., property.security.protocol: ..., conf.spark.driver.memory: ..."),
        servers_option(),
        click.option("--name", help="Use only the pipeline of this name, if FILE has several."),
        click.option("--master", default="local[*]", show_default=True, help="Spark master: local[*], "
        "spark://HOST:7077, ..."),
        click.option("--remote", help="Spark Connect server (sc://HOST:15002) to use instead of --master."),
        CHECKPOINTS,
        property_option(),
        profiled,
        SPARK_SETTINGS,
        click.option("--py-files", multiple=True, metavar="FILE", help="Further .py or .zip files; may be repeated."),
        click.option("--archive", metavar="FILE", help="Packed Python environment for the executors."),
        click.option("--max-offsets-per-trigger", metavar="N", type=click.IntRange(0), help="Most records in a "
        "micro-batch (default: 5,000,000; 0: no limit)."),
        click.option("--at-least-once", is_flag=True, help="Write to topics without transactions "
        "(records may be duplicated)."),
        click.option("--lineage", metavar="WHERE", help="Send OpenLineage events to http(s)://HOST/api/v1/lineage, "
        "file:PATH or topic:NAME."),
        click.option("--spark-log", metavar="FILE", help="File for Spark's own log (default: in the state directory)."),
        click.option("--format", "source_format", type=click.Choice(["ottla", "kafka"]), hidden=True),
        STATE,
    ):  # fmt: skip
        command = option(command)
    return command


def pick(file: str, name: str | None) -> list[Pipeline]:
    from ottla.model.user_error import UserError
    from ottla.pipelines.pipeline import load_pipelines

    pipelines = load_pipelines(file)
    if name is None:
        return pipelines
    named = [pipeline for pipeline in pipelines if pipeline.name == name]
    if not named:
        raise UserError(f"{file} has no pipeline {name!r}; it has {', '.join(pipeline.name for pipeline in pipelines)}")
    return named


def version(pipelines: list[Pipeline], suffix: str) -> list[Pipeline]:
    """The pipelines as they are written, or with the outputs that a suffix names."""
    from ottla.pipelines.backfills import backfilled

    return [backfilled(pipeline, suffix) for pipeline in pipelines] if suffix else pipelines
