"""Expectations in the plan of an output: rows that fail are counted, and dropped, quarantined or an error.

All conditions become one column, the names of the expectations that a row fails. So a batch is read and computed once.
Spark counts with `observe`, and its progress events carry the counts of the batches that ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.connect.sinks.base import DELETED
from ottla.model.user_error import UserError
from ottla.pipelines.codecs import column_name
from ottla.pipelines.expectations import DROP, FAIL, QUARANTINE, Expectation
from ottla.pipelines.reasons import plain_reason

FAILED = "__ottla_failed"
"""The column of names and conditions that a row fails; only frames with a quarantine keep the column."""
OBSERVATION = "ottla_expectations"
EXPECTATION_HEADER, CONDITION_HEADER = "ottla.expectation.name", "ottla.expectation.condition"
_ERROR = "__connect.errors."
_ROW_CHARACTERS = 500
"""Of a row in an error."""


def checked(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """The rows that go on, counted. With a quarantine the rows that fail stay, marked by FAILED.

    UserError for a condition that is no condition on a row of the frame.
    """
    if not expectations:
        return frame
    for expectation in expectations:
        _check(frame, expectation)
    failures = [F.when(~_passes(frame, expectation), _label(expectation)) for expectation in expectations]
    rows = frame.withColumn(FAILED, F.array_compact(F.array(*failures)))
    counts = [F.count(F.when(_fails([expectation]), 1)).alias(f"failed_{number}")
              for number, expectation in enumerate(expectations)]  # fmt: skip
    rows = rows.observe(OBSERVATION, F.count(F.lit(1)).alias("rows"), *counts)
    return _kept(rows, expectations)


def _kept(rows: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """A row that fails several expectations is an error before it is quarantined, and quarantined before it is dropped."""
    failing, quarantined, dropped = (
        [expectation for expectation in expectations if expectation.on_fail == action]
        for action in (FAIL, QUARANTINE, DROP)
    )
    if failing:
        error = F.raise_error(_reason(rows, failing)).cast("boolean")
        rows = rows.where(F.when(_fails(failing), error).otherwise(F.lit(True)))
    if dropped:
        stays = ~_fails(dropped)
        rows = rows.where(stays | _fails(quarantined) if quarantined else stays)
    return rows if quarantined else rows.drop(FAILED)


def _check(frame: DataFrame, expectation: Expectation) -> None:
    try:
        plan = frame.where(F.expr(expectation.condition))
        plan.schema  # noqa: B018 - Spark Connect analyses a plan only for its schema
    except PySparkException as problem:
        raise UserError(f"the expectation {expectation.name!r} cannot be checked: {plain_reason(problem)}") from problem
    if not _is_deterministic(frame, expectation.condition):
        raise UserError(
            f"the expectation {expectation.name!r} may give a different result for the same row, so a repeated batch would "
            "differ: use no random function"
        )


def _is_deterministic(frame: DataFrame, condition: str) -> bool:
    """A Spark Connect client has no plans to ask."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return True
    selected: Any = frame.selectExpr(f"({condition}) as passes")
    expressions = selected._jdf.queryExecution().analyzed().expressions()  # noqa: SLF001 - PySpark's only way to the plan
    return all(expressions.apply(index).deterministic() for index in range(expressions.size()))


def _passes(frame: DataFrame, expectation: Expectation) -> Column:
    """A deletion has a key and no values: no condition speaks of such a row."""
    passes = F.coalesce(F.expr(expectation.condition), F.lit(False))
    return F.coalesce(F.col(DELETED), F.lit(False)) | passes if DELETED in frame.columns else passes


def _label(expectation: Expectation) -> Column:
    return F.struct(F.lit(expectation.name).alias("name"), F.lit(expectation.condition).alias("condition"))


def _fails(expectations: Sequence[Expectation]) -> Column:
    return F.arrays_overlap(F.col(f"{FAILED}.name"), _names(expectations))


def _names(expectations: Sequence[Expectation]) -> Column:
    return F.array(*[F.lit(expectation.name) for expectation in expectations])


def is_good() -> Column:
    """Whether a row of a frame with FAILED goes to the output. Rows that were dropped or are an error are gone by then."""
    return F.size(FAILED) == 0


def _reason(rows: DataFrame, expectations: Sequence[Expectation]) -> Column:
    names = F.concat_ws(", ", F.array_intersect(f"{FAILED}.name", _names(expectations)))
    parts = [F.lit("expectation failed: "), names, F.lit(": ")]
    if {"_topic", "_partition", "_offset"} <= set(rows.columns):
        parts.append(F.format_string("%s-%d offset %d: ", "_topic", "_partition", "_offset"))
    return F.concat_ws("", *parts, F.substring(row_as_json(rows), 1, _ROW_CHARACTERS))


def row_as_json(rows: DataFrame) -> Column:
    """What an output would have, whatever its format is."""
    names = [column_name(name) for name in rows.columns if not name.startswith("_")]
    return F.to_json(F.struct(*names), {"ignoreNullFields": "false"}) if names else F.lit("{}")


def quarantine_headers(rows: DataFrame) -> Column:
    """The headers of the row, those of a dead letter as far as the row knows its record, and a pair for each expectation."""
    facts: dict[str, Column] = {
        name: F.col(f"_{name}").cast("string")
        for name in ("topic", "partition", "offset")
        if f"_{name}" in rows.columns
    }
    facts |= {
        "stage": F.lit("TRANSFORMATION"),
        "class.name": F.lit(__name__),
        "exception.class.name": F.lit("ExpectationFailed"),
        "exception.message": F.concat(F.lit("expectation failed: "), F.concat_ws(", ", F.col(f"{FAILED}.condition"))),
    }
    reasons = F.array(*[_header(_ERROR + name, fact) for name, fact in facts.items()])
    pairs = F.flatten(
        F.transform(
            FAILED,
            lambda failed: F.array(
                _header(EXPECTATION_HEADER, failed["name"]), _header(CONDITION_HEADER, failed["condition"])
            ),
        )
    )
    return F.concat(reasons, pairs)


def _header(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value"))


def failed_counts(expectations: Sequence[Expectation], progress: Mapping[str, Any]) -> tuple[int, list[int]]:
    """The checked rows of a batch, and how many of them failed each expectation."""
    observed = (progress.get("observedMetrics") or {}).get(OBSERVATION)
    if observed is None:
        return 0, [0] * len(expectations)
    values = observed.asDict() if hasattr(observed, "asDict") else dict(observed)
    return int(values["rows"]), [int(values[f"failed_{number}"]) for number in range(len(expectations))]
