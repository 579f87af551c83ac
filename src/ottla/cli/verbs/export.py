"""`ottla export` and `ottla import`: a topic as a file, and back. JSON lines or Parquet; bytes that are no text
are base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.completions import topic_names
from ottla.cli.options.connecting import connected
from ottla.model.extras import require

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target

COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


def _kind(path: Path) -> str:
    if path.suffix in {".jsonl", ".ndjson", ".json"}:
        return "jsonl"
    if path.suffix == ".parquet":
        require(f"{path.name}, a Parquet file,", "pyarrow")
        return "parquet"
    raise ValueError(f"{path}: the name must end in .jsonl or .parquet, which sets the format")


@click.command("export")
@click.argument("topic", shell_complete=topic_names)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="WHERE",
    help="beginning, end, an offset, -10m or 2026-01-01, as in `ottla consume`.",
)
@click.option("--mask", type=click.Path(exists=True, dir_okay=False), metavar="RULES",
              help="TOML file whose [[mask]] rules name the fields to mask, for every user (docs/security.md).")  # fmt: skip
@connected
def export_(target: Target, topic: str, file: Path, start: str, mask: str | None) -> None:
    r"""Write a topic into FILE (.jsonl or .parquet), from the start position to the end that the topic has now.

    \b
    Examples:
      ottla export orders orders.jsonl
      ottla export orders orders.parquet --from 2026-01-01
      ottla export payments shared.jsonl --mask access.toml
    """
    from ottla.cli.records.reading import Reading
    from ottla.cli.records.start_position import parse_when
    from ottla.cli.terminal.output import progress, show_tree

    kind = _kind(file)
    shown = _masking(target, topic, mask) if mask else None
    reading = Reading(target, topic, parse_when(start))
    count = 0
    partial = file.with_name(file.name + ".partial")
    try:
        with progress(max(reading.total, 1), topic) as bar:

            def rows() -> Iterator[list[dict[str, Any]]]:
                nonlocal count
                for batch in filter(None, reading.batches(follow=False)):
                    count += len(batch)
                    bar.update(len(batch))
                    yield [_row(message if shown is None else shown(message)) for message in batch]

            (_write_parquet if kind == "parquet" else _write_lines)(partial, rows())
        partial.replace(file)
    finally:
        reading.close()
        partial.unlink(missing_ok=True)
    if target.output != "table":
        show_tree({"records": count, "topic": topic, "file": str(file)}, target.output)
        return
    click.echo(f"{count} records of {topic} in {file}", err=True)


def _masking(target: Target, topic: str, path: str) -> Callable[[Any], Any] | None:
    """A function that masks a message; None if no rule is about the topic. Raises ValueError for a bad file."""
    from ottla.console.messages.decode import Decoder
    from ottla.console.messages.masked import MaskedMessage, Masker
    from ottla.console.registry_client import ConsoleRegistry
    from ottla.security.access_rules import load_access_rules

    mask = load_access_rules(path).masks.on(topic, None)
    if mask is None:
        click.echo(f"no rule of {path} names the topic {topic}: no field is masked", err=True)
        return None
    masker = Masker(mask, Decoder(ConsoleRegistry(target.profile.registry or "")))
    return lambda message: MaskedMessage(message, masker)


def _row(message: Any) -> dict[str, Any]:
    headers = [[name, _shown(data)] for name, data in message.headers() or ()]
    return {
        "partition": message.partition(), "offset": message.offset(), "timestamp": message.timestamp()[1],
        "key": message.key(), "value": message.value(), "headers": headers,
    }  # fmt: skip


def _shown(data: bytes | None) -> Any:
    """Text as itself, other bytes as {"base64": ...}, nothing as null."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(shown: Any) -> bytes | None:
    if shown is None or isinstance(shown, bytes):
        return shown
    if isinstance(shown, dict) and "base64" in shown:
        return base64.b64decode(shown["base64"])
    return shown.encode() if isinstance(shown, str) else json.dumps(shown).encode()


def _write_lines(path: Path, batches: Iterable[list[dict[str, Any]]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for batch in batches:
            for row in batch:
                line = {**row, "key": _shown(row["key"]), "value": _shown(row["value"])}
                out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def _write_parquet(path: Path, batches: Iterable[list[dict[str, Any]]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([
        ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64()), ("key", pa.binary()),
        ("value", pa.binary()), ("headers", pa.string()),
    ])  # fmt: skip
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            rows = [{**row, "headers": json.dumps(row["headers"])} for row in batch]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("topic", shell_complete=topic_names)
@click.option("--keep-partition", is_flag=True, help="Write each record to the partition that the file names.")
@click.option("--keep-time", is_flag=True, help="Write each record with the timestamp in the file.")
@connected
def import_(target: Target, file: Path, topic: str, keep_partition: bool, keep_time: bool) -> None:  # noqa: FBT001 - click passes flags so
    r"""Write the records of FILE (.jsonl or .parquet, as export makes them) into TOPIC.

    \b
    Example:
      ottla import orders.jsonl orders-copy --keep-partition
    """
    from confluent_kafka import Producer

    from ottla.cli.terminal.output import progress, show_tree

    rows = _read_parquet(file) if _kind(file) == "parquet" else _read_lines(file)
    producer: Any = Producer(target.librdkafka(producer=True, defaults={"linger.ms": 20}, partitioner="murmur2_random"))
    failed: list[str] = []
    count = 0

    def delivered(error: Any, message: Any) -> None:
        del message
        if error is not None:
            failed.append(error.str())

    size = file.stat().st_size
    with progress(max(size, 1), topic) as bar:
        for row, used in rows:
            more = {"partition": int(row["partition"])} if keep_partition else {}
            more |= {"timestamp": int(row["timestamp"])} if keep_time and row.get("timestamp", -1) >= 0 else {}
            headers = [(name, _bytes(data)) for name, data in row.get("headers") or []]
            while True:
                try:
                    producer.produce(
                        topic, _bytes(row.get("value")), key=_bytes(row.get("key")), headers=headers or None,
                        on_delivery=delivered, **more,
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            count += 1
            bar.update(used)
            if failed:
                break
        left = producer.flush(60)
    if failed or left:
        raise ValueError(f"stopped after {count - left - len(failed)} records: {failed[0] if failed else 'no answer'}")
    if target.output != "table":
        show_tree({"records": count, "topic": topic, "file": str(file)}, target.output)
        return
    click.echo(f"{count} records of {file} in {topic}", err=True)


def _read_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as reason:
                raise ValueError(f"{path}, line {number}: not JSON: {reason}") from None
            if not isinstance(row, dict) or "value" not in row:
                raise ValueError(f"{path}, line {number}: not a record: the field value is missing")
            yield row, len(line)


def _read_parquet(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    row_bytes = max(path.stat().st_size // max(file.metadata.num_rows, 1), 1)
    for batch in file.iter_batches(1000):
        for row in batch.to_pylist():
            if isinstance(row.get("headers"), str):
                row["headers"] = json.loads(row["headers"])
            yield row, row_bytes
