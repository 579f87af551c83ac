"""`ottla.write`: the rows of a table as records of a topic.

A row becomes a JSON object. Every record is acknowledged by all replicas in sync before `write` returns; keys choose the
partitions as Java's clients do.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ottla.frames.connecting import Settings, check_login, producer_settings, wire_settings
from ottla.model.extras import require
from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from confluent_kafka import Producer

_FLUSH_S = 60.0
_ROWS_AT_ONCE = 10_000


def write(
    topic: str,
    frame: Any,
    *,
    key: str | None = None,
    bootstrap_servers: str | None = None,
    settings: Settings | None = None,
) -> int:
    """Write each row of `frame` to `topic` as a JSON object. Returns the number of records. Raises UserError.

    `frame` is a table of Arrow, pandas, polars or DuckDB, or an iterable of dictionaries. `key` names the column whose
    value is the key of the record too: text and bytes as they are, everything else as JSON. `settings` are those of
    `ottla.read`.
    """
    from confluent_kafka import KafkaException

    check_login(wire_settings(bootstrap_servers, settings))
    producer = _producer(bootstrap_servers, settings)
    failures: list[Any] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    count = 0
    for row in _rows(frame):
        value, key_bytes = _json(row), None if key is None else _key(row, key)
        while True:
            try:
                producer.produce(topic, value, key_bytes, on_delivery=on_delivery)
                break
            except BufferError:  # the queue is full: wait until records are acknowledged
                producer.poll(1.0)
            except KafkaException as refusal:
                raise UserError(f"{topic}: record {count} was refused: {refusal}") from refusal
        count += 1
        if failures:
            break
    missing = producer.flush(_FLUSH_S)
    if failures:
        raise UserError(f"{topic}: {len(failures)} of {count} records were not written: {failures[0].str()}")
    if missing:
        raise UserError(f"{topic}: {missing} of {count} records were not acknowledged in {_FLUSH_S:g} s")
    return count


def _producer(bootstrap_servers: str | None, settings: Settings | None) -> Producer:
    from confluent_kafka import KafkaException, Producer

    try:
        return Producer(producer_settings(bootstrap_servers, settings))
    except KafkaException as refusal:  # a wrong value, or a name that no client has
        raise UserError(f"the settings of ottla.write are refused: {refusal.args[0].str()}") from refusal


def _rows(frame: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of whatever has Arrow data, else the items of an iterable."""
    module = type(frame).__module__.partition(".")[0]
    if module == "pandas":
        require("ottla.write of a pandas frame", "pyarrow")
        import pyarrow as pa

        frame = pa.Table.from_pandas(frame, preserve_index=False)
    elif module == "polars":
        yield from frame.iter_rows(named=True)
        return
    elif hasattr(frame, "to_arrow_table"):
        frame = frame.to_arrow_table()
    if hasattr(frame, "to_batches"):
        for batch in frame.to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield from batch.to_pylist()
        return
    if hasattr(frame, "to_pylist"):
        yield from frame.to_pylist()
        return
    if not isinstance(frame, Iterable) or isinstance(frame, str | bytes | Mapping):
        raise UserError(
            f"ottla.write has no rows in a {type(frame).__name__}: give a table of Arrow, pandas, polars or DuckDB, or a "
            "list of dictionaries"
        )
    for row in frame:
        if not isinstance(row, Mapping):
            raise UserError(f"ottla.write writes dictionaries, and a row is of the type {type(row).__name__}")
        yield row


def _key(row: Mapping[str, Any], key: str) -> bytes | None:
    if key not in row:
        raise UserError(f"the key column {key!r} is missing; the row has {', '.join(map(str, row))}")
    value = row[key]
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _json(value)


def _json(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value).encode()
    except ValueError:  # JSON has no NaN and no infinity
        return _ENCODER.encode(_finite(value)).encode()


def _finite(value: Any) -> Any:
    """The value with null for NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(field) for name, field in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """Times in ISO 8601, decimals as text, bytes as text, or as {"base64": ...} if the bytes are not UTF-8."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    raise UserError(f"ottla.write has no JSON for a value of the type {type(value).__name__}")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
