"""Why a query failed, in one line: from the text that Spark gives to the words of the error behind it."""

from __future__ import annotations

import os
import re

_OTHER_QUERY = ("sources in the checkpoint offsets", "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA")
_OTHER_STATE = (
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
)


def plain_reason(problem: BaseException) -> str:
    """The line that matters: our own error, the user's exception with file and line, or Spark's first line."""
    text = str(problem)
    bad = re.search(r"bad record: \S+-\d+ offset \d+: .+", text)
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
    if any(words in text for words in _OTHER_QUERY):
        return (
            "the step has other inputs, joins or aggregates than its checkpoint: run it as it was, or create new outputs "
            "with `ottla pipeline backfill`"
        )
    thrown = getattr(problem, "java_exception", None)  # py4j's own text begins with the call
    text = text if thrown is None else str(thrown)
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip() if lines else type(problem).__name__


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
    if name.startswith("ottla."):
        return message
    reason = f"{name.rpartition('.')[2]}: {message}" if message else name.rpartition(".")[2]
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', last)
    own = [frame for frame in frames if "site-packages" not in frame[0] and "/pyspark/" not in frame[0]]
    if not own:
        return reason
    path, line, function = own[-1]
    return f"{reason} in {function} ({os.path.basename(path)}, line {line})"


def _without_state(line: str) -> str:
    return line.split(" SQLSTATE", maxsplit=1)[0].strip()
