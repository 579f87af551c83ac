"""Messages out of a topic into a file: CSV, JSON lines or Parquet, streamed, so that its size does not matter here.

Text stays text; bytes that are not UTF-8 are written as base64, and the column beside them names the encoding. A
spreadsheet must not run what stands in a topic: CSV cells that begin like a formula get a quote in front.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.messages.browse import Place
from ottla.console.messages.filters import Predicate
from ottla.console.messages.reach import Client
from ottla.console.messages.record import BrowsedRecord, from_message
from ottla.console.messages.span import Walk, consumer
from ottla.console.settings import MAX_EXPORT

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "key_encoding", "value", "value_encoding", "headers")
MEDIA_TYPES = {"csv": "text/csv", "jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet"}
_FORMULA = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20\ufe62\ufe63\ufe66\ufe6b\u2212]|[\t\r\n]"
)
"""Spreadsheets cut white space and invisible characters off, and read full-width and small signs as ASCII signs."""
_PATIENCE_S = 60.0
_BATCH = 5_000


def records(
    client: Client, topic: str, place: Place, predicate: Predicate | None, limit: int
) -> Iterator[list[BrowsedRecord]]:
    """Batches of the wanted records, at most `limit` in all."""
    left = min(limit, MAX_EXPORT)
    with consumer(client) as reader:
        walk = Walk(reader, place.span(reader, topic))
        last_news = time.monotonic()
        while not walk.done and left > 0:
            messages = walk.step(_BATCH, 0.5)
            if messages:
                last_news = time.monotonic()
            elif time.monotonic() - last_news > _PATIENCE_S:
                raise ConsoleError(f"{topic} gave nothing for {_PATIENCE_S:.0f} s; the file ends here", status=504)
            chosen = [message for message in messages if predicate is None or predicate(message)][:left]
            left -= len(chosen)
            if chosen:
                yield [from_message(message, None) for message in chosen]


def as_csv(batches: Iterator[list[BrowsedRecord]]) -> Iterator[bytes]:
    yield (",".join(COLUMNS) + "\r\n").encode()
    for batch in batches:
        text = io.StringIO()
        writer = csv.writer(text)
        for record in batch:
            row = _row(record)
            writer.writerow([_safe(row[name]) for name in COLUMNS])
        yield text.getvalue().encode()


def as_json_lines(batches: Iterator[list[BrowsedRecord]]) -> Iterator[bytes]:
    for batch in batches:
        yield "".join(json.dumps(_row(record), ensure_ascii=False) + "\n" for record in batch).encode()


def as_parquet(batches: Iterator[list[BrowsedRecord]]) -> Iterator[bytes]:
    """Key, value and headers as bytes, the columns named as Spark's Kafka source names them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")), ("key", pa.binary()), ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ])  # fmt: skip
    with tempfile.TemporaryFile() as file:
        with pq.ParquetWriter(file, schema) as writer:
            for batch in batches:
                rows = [
                    {
                        "topic": r.topic, "partition": r.partition, "offset": r.offset, "timestamp": r.timestamp_ms,
                        "key": r.key, "value": r.value, "headers": [{"key": n, "value": v} for n, v in r.headers],
                    }
                    for r in batch
                ]  # fmt: skip
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        file.seek(0)
        while chunk := file.read(1 << 20):
            yield chunk


WRITERS = {"csv": as_csv, "jsonl": as_json_lines, "parquet": as_parquet}


def _row(record: BrowsedRecord) -> dict[str, Any]:
    key, key_encoding = _text(record.key)
    value, value_encoding = _text(record.value)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": [[name, *_text(data)] for name, data in record.headers],
    }


def _text(data: bytes | None) -> tuple[str | None, str]:
    if data is None:
        return None, "null"
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _safe(cell: Any) -> Any:
    if isinstance(cell, list):
        return json.dumps(cell, ensure_ascii=False)
    return "'" + cell if isinstance(cell, str) and _FORMULA.match(cell) else cell
