"""The columns of the topics and tables of a pipeline, from Spark's analysis of each step. No record is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ottla.model.user_error import UserError
from ottla.pipelines import build
from ottla.pipelines.analysis import branches_of
from ottla.pipelines.graph import NodeColumns
from ottla.pipelines.pipeline import Pipeline, Step, output_nodes
from ottla.pipelines.reasons import called, plain_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def node_columns(spark: SparkSession, pipeline: Pipeline, settings: build.RunSettings) -> NodeColumns:
    """By node of the graph, without columns that begin with _. UserError for a step that Spark cannot plan."""
    schemas: dict[str, StructType] = {}
    for step in pipeline.in_order():
        try:
            _look(spark, step, settings, schemas)
        except (UserError, PySparkException) as problem:
            raise UserError(f"step {step.name}: {plain_reason(problem)}") from problem
    return {
        node: [(column.name, column.dataType.simpleString()) for column in schema if not column.name.startswith("_")]
        for node, schema in schemas.items()
    }


def _look(spark: SparkSession, step: Step, settings: build.RunSettings, schemas: dict[str, StructType]) -> None:
    inputs: dict[str, DataFrame] = {}
    for name, port in step.reads.items():
        try:
            inputs[name] = build.input_frame(spark, port, settings)
        except (UserError, PySparkException):
            if port.node not in schemas:  # else a table that an earlier step makes
                raise
            inputs[name] = spark.createDataFrame([], schemas[port.node])
        schemas.setdefault(port.node, inputs[name].schema)
    result = branches_of(step, called(step.function, inputs))
    for branch, frame in result.items():
        for node in output_nodes(step) if len(result) == 1 else [step.writes[branch].node]:
            schemas.setdefault(node, frame.schema)
