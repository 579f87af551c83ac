"""Why a query failed, in one line: from the text that Spark gives to the words of the error behind it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ottla.model.user_error import UserError
from ottla.pipelines.places import is_users_file, place_of, records_of

_OTHER_STATE = ("STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",)
KEEP_OR_SWITCH = (
    "run the step as it was, or create new outputs with `ottla pipeline backfill` and go over to them with `ottla pipeline "
    "switch`"
)
_PASSING = ("failed to connect back", "java.io.OptionalDataException", "java.util.ConcurrentModificationException")
"""Spark gives a Python worker ten seconds to start, which a busy machine does not always manage. All queries of a session
share the Python function of a data source. Spark changes the environment variables of that function for one query while
the task of another query is serialized. Such a task cannot be read (pyspark 4.3, four queries that started at once).
"""
_PLACE = re.compile(r", line \d+\)$")
_RECORD = re.compile(r"\S+-\d+ offset \d+: ")
_OPERATORS = {
    "stateStoreSave": "an aggregate",
    "sessionWindowStateStoreSaveExec": "a session window",
    "dedupe": "dropDuplicates",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark",
    "symmetricHashJoin": "a join of two streams",
    "transformWithStateInPySparkExec": "a join with a table or a state of your own",
    "globalLimit": "limit",
}
"""Spark's stateful operators as a user writes them."""


def plain_reason(problem: BaseException) -> str:
    """The line that matters: our own error, the user's exception, or Spark's first line; with the user's line and the
    records of the batch, as far as Spark gives them."""
    text = str(problem)
    reason = _reason(problem, text)
    place = "" if _PLACE.search(reason) else place_of(problem, text)
    return reason + place + ("" if _RECORD.search(reason) else records_of(text))


def is_passing(problem: BaseException) -> bool:
    """Whether the same query, started again, may well succeed."""
    return any(words in str(problem) for words in _PASSING)


def called(function: Callable[..., Any], inputs: Mapping[str, Any]) -> Any:
    """The result of a step's function. An error of Python becomes a UserError with the line of the user's file."""
    try:
        return function(**inputs)
    except (UserError, PySparkException, Py4JJavaError):
        raise
    except Exception as problem:  # a supervisor: every error of a step's function is reported with its line
        text = f"{type(problem).__name__}: {problem}"
        raise UserError(text + place_of(problem, "")) from problem


def _reason(problem: BaseException, text: str) -> str:
    bad = re.search(r"(bad record: \S+-\d+ offset \d+|expectation failed): .+", text)
    if bad:
        return _without_state(bad[0])
    if any(words in text for words in _OTHER_STATE):
        return (
            "the state in the checkpoint of the step has another form, of an earlier version of Ottla or of the step: run that "
            "version, or create new outputs with `ottla pipeline backfill`"
        )
    exception = _python_exception(text)
    if exception:
        return exception
    column = re.search(
        r"with name (`.+?`) cannot be resolved\.(?: Did you mean one of the following\? \[(.+?)\])?", text
    )
    if column:
        like = f" ({column[2].replace('`', '')} are there)" if column[2] else ""
        name = column[1].replace("`", "")
        return f"there is no column {name}{like}: correct the step, or the schema of its input"
    change = _changed_query(text)
    if change:
        return f"{change}: {KEEP_OR_SWITCH}"
    thrown = getattr(problem, "java_exception", None)  # py4j's own text begins with the call
    text = text if thrown is None else str(thrown)
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip() if lines else type(problem).__name__


def _changed_query(text: str) -> str:
    """How a query differs from its checkpoint, in Spark's errors of that kind; empty for other errors."""
    if "sources in the checkpoint offsets" in text:
        return "the step has other inputs than its checkpoint"
    if "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA" in text:
        before, _, after = text.partition("Stateful operators in current batch")
        return f"the checkpoint has the state of {_operators(before)}, the step has {_operators(after)}"
    schemas = re.search(r"Existing (key|value)_schema=(.+) and new \1_schema=(.+)\.", text)
    if schemas:
        kind = {"key": "keys", "value": "values"}[schemas[1]]
        return f"the state of the checkpoint has the {kind} {_fields(schemas[2])}, the step has {_fields(schemas[3])}"
    return ""


def _operators(text: str) -> str:
    names = re.findall(r"OperatorName: (\w+)", text)
    return " and ".join(_OPERATORS.get(name, name) for name in names) or "nothing"


def _fields(schema: str) -> str:
    """`StructType(StructField(page,StringType,true))` as `page string`."""
    fields = re.findall(r"StructField\((\w+),(\w+?)(?:Type)?[,(]", schema)
    return ", ".join(f"{name} {kind.lower()}" for name, kind in fields) or schema


def state_columns(keys: Sequence[str], values: Sequence[str]) -> str:
    return f"the values {', '.join(values)} by {', '.join(keys)}"


def _python_exception(text: str) -> str:
    """The exception of the last traceback in Spark's text; empty if there is none.

    Spark passes a worker's traceback on as text: between its own sentence and Java's stack. The exception is the first
    line after the traceback's frames, and its class may have any name.
    """
    _, traceback, last = text.rpartition("Traceback")
    exception = next((line for line in last.splitlines()[1:] if re.match(r"[A-Za-z_]", line)), "") if traceback else ""
    name, _, message = _without_state(exception).partition(": ")
    if not name:
        return ""
    if name == "py4j.protocol.Py4JJavaError":
        return _java_exception(last)
    if name.startswith("ottla."):
        return message
    reason = f"{name.rpartition('.')[2]}: {message}" if message else name.rpartition(".")[2]
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', last)
    own = [frame for frame in frames if is_users_file(frame[0])]
    if not own:
        return reason
    path, line, function = own[-1]
    return f"{reason} in {function} ({os.path.basename(path)}, line {line})"


def _java_exception(text: str) -> str:
    """What Java threw, in Python's traceback of a call: the innermost cause, without its package."""
    causes = re.findall(r"^(?:: |Caused by: )(.+)$", text, re.MULTILINE)
    name, _, message = _without_state(causes[-1] if causes else "an error of Java").partition(": ")
    return f"{name.rpartition('.')[2]}: {message}" if message else name


def _without_state(line: str) -> str:
    return line.split(" SQLSTATE", maxsplit=1)[0].strip()
