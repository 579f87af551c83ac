"""Which expressions made the state of a query: noted beside its checkpoint at the first start, compared at each later start.

Spark compares types and operators of a state with those of the plan. It does not compare what the values are: the state of
`sum(a)` goes on as that of `sum(b)`, and with equal types `count` goes on as `sum`. Only the expressions of stateful operators are
noted. Code before and after them may change.

The note is one file of the pipeline, `ottla.state.json`, with the version of Spark, whose text of an expression may change. A query
without a note, or with that of a different Spark, is compared by its state columns (state_changes.py) and noted then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.pipelines.checkpoints import STATE_NOTES, Checkpoint
from ottla.pipelines.reasons import KEEP_OR_SWITCH
from ottla.pipelines.state_changes import state_problem
from ottla.pipelines.stored_state import StoredState, stored_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DEDUPLICATIONS = ("Deduplicate", "DeduplicateWithinWatermark")


def checked_state(checkpoint: Checkpoint, query: str, frame: DataFrame, output_mode: str) -> str | None:
    """Why the query cannot go on with its checkpoint. If there is no reason, its expressions are noted."""
    stored = stored_state(checkpoint, query)
    noted = None if stored is None else noted_expressions(checkpoint, query)
    expressions = state_expressions(frame)
    differs = difference(noted, expressions) if noted is not None else None
    if noted is not None and differs is None:
        return None
    if stored is not None and stored.has_state:
        reason = state_problem(frame, output_mode, stored, f"{checkpoint.folder}/{query}") or differs
        if reason is not None:
            return reason
    if expressions or _notes(checkpoint).get(query):
        checkpoint.write(STATE_NOTES, spark=_spark_version(), queries={**_notes(checkpoint), query: expressions})
    return None


def expression_problem(checkpoint: Checkpoint, stored: StoredState, frame: DataFrame) -> str | None:
    """The same comparison without a note, for `validate`."""
    noted = noted_expressions(checkpoint, stored.query)
    return None if noted is None else difference(noted, state_expressions(frame))


def noted_expressions(checkpoint: Checkpoint, query: str) -> list[list[str]] | None:
    """One list for each stateful operator. None if this version of Spark has noted nothing."""
    return _notes(checkpoint).get(query)


def _notes(checkpoint: Checkpoint) -> dict[str, list[list[str]]]:
    content = checkpoint.read(STATE_NOTES)
    notes: dict[str, list[list[str]]] = content.get("queries", {}) if content.get("spark") == _spark_version() else {}
    return notes


def difference(before: Sequence[Sequence[str]], now: Sequence[Sequence[str]]) -> str | None:
    """Of operators of the same kinds; Spark itself refuses others, and names them."""
    if [operator[0] for operator in before] != [operator[0] for operator in now]:
        return None
    for old, new in zip(before, now, strict=True):
        if list(old) != list(new):
            return (
                f"the state of the checkpoint was made by {_text(old)}, the step has {_text(new)}, and Spark would go on "
                f"with the old values: {KEEP_OR_SWITCH}"
            )
    return None


def _text(operator: Sequence[str]) -> str:
    kind, *expressions = operator
    return f"{kind} ({'; '.join(expressions)})"


def state_expressions(frame: DataFrame) -> list[list[str]]:
    """The stateful operators of a plan from its result to its inputs, each with its kind and its expressions as SQL."""
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark's only way to the plan
    return [operator for node in _nodes(plan) if (operator := _operator(node)) is not None]


def _operator(node: Any) -> list[str] | None:
    name = str(node.nodeName())
    if name == "Aggregate":
        keys = [_sql(key) for key in _items(node.groupingExpressions())]
        results = [part for result in _items(node.aggregateExpressions()) for part in _aggregates(result)]
        return ["an aggregate", f"{', '.join(dict.fromkeys(results))} by {', '.join(keys) or 'nothing'}"]
    if name in _DEDUPLICATIONS:
        return ["dropDuplicates", ", ".join(sorted(_sql(key) for key in _items(node.keys())))]
    if name == "Join" and all(side.isStreaming() for side in _items(node.children())):
        condition = node.condition()
        return [
            "a join of two streams",
            str(node.joinType().sql()),
            _sql(condition.get()) if condition.isDefined() else "",
        ]
    return None


def _nodes(node: Any) -> Iterator[Any]:
    """Streaming ones only: others keep no state."""
    if node.isStreaming():
        yield node
        for child in _items(node.children()):
            yield from _nodes(child)


def _aggregates(expression: Any) -> Iterator[str]:
    if str(expression.nodeName()) == "AggregateExpression":
        yield _sql(expression)
        return
    for child in _items(expression.children()):
        yield from _aggregates(child)


def _sql(expression: Any) -> str:
    """Without the name of a result, which may change."""
    named = str(expression.nodeName()) == "Alias"
    return str((expression.child() if named else expression).sql())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _spark_version() -> str:
    import pyspark

    return ".".join(pyspark.__version__.split(".")[:2])
