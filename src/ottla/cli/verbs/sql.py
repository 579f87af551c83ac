"""`ottla sql`: a query over topics and Delta tables, answered by DuckDB with no JVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connecting import Target, located, registry_option
from ottla.cli.options.output_format import output_option

if TYPE_CHECKING:
    from ottla.cli.options.profiles import Profile


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("query")
@located
@registry_option
@click.option(
    "--delta",
    "tables",
    multiple=True,
    metavar="NAME=PATH",
    help="Delta table that the query may name; may be repeated.",
)
@click.option(
    "--max-records", type=click.IntRange(1), help="Read only this number of the newest records of each partition."
)
@output_option("table", "json", "csv")
def sql(
    where: Profile,
    query: str,
    registry: str | None,
    tables: tuple[str, ...],
    max_records: int | None,
    output: str,
) -> None:
    r"""Answer a SQL QUERY over topics.

    A topic is a table of its name; quote one with dots or dashes. Its columns are key, value (text), json, topic,
    partition, offset, timestamp, headers, key_bytes and value_bytes. Avro, JSON Schema and Protobuf are decoded
    through the registry: --registry, or that of `ottla up`.

    \b
    Examples:
      ottla sql "select json->>'page' as page, count(*) as n from hits group by all order by n desc"
      ottla sql 'select * from "hits-per-minute" limit 5' -o json
      ottla sql "select * from totals" --delta totals=tables/totals
    """
    from ottla.cli.records.node_registry import registry_url
    from ottla.cli.records.schema_texts import schema_texts
    from ottla.tables.query import run_sql

    client = {**where.properties, "bootstrap.servers": where.bootstrap}
    more, notes = _delta_tables(tables)
    url = registry_url(Target(replace(where, registry=registry or where.registry), output))
    rows, offsets = run_sql(client, query, max_records=max_records, more=more, text_of=schema_texts(url))
    if output == "json":
        for row in rows.to_pylist():
            click.echo(json.dumps(row, default=_plain))
    elif output == "csv":
        import csv

        out = csv.writer(sys.stdout)
        out.writerow(rows.column_names)
        out.writerows([_cell(value) for value in row.values()] for row in rows.to_pylist())
    else:
        from ottla.cli.terminal.tables import print_rows

        print_rows(rows.column_names, [[_shown(value) for value in row.values()] for row in rows.to_pylist()])
        if when := _true_at(offsets, notes):
            click.echo(when)


def _delta_tables(table_paths: tuple[str, ...]) -> tuple[dict[str, object], list[str]]:
    from ottla.connect.sinks.delta import read_delta

    tables: dict[str, object] = {}
    notes = []
    for table_path in table_paths:
        name, separator, path = table_path.partition("=")
        if not separator:
            raise click.UsageError(f"--delta {table_path!r} is not NAME=PATH")
        tables[name], note = read_delta(path)
        if note:
            notes.append(f"{name} at {note.get('ottla.offsets', '?')}")
    return tables, notes


def _true_at(offsets: Mapping[Any, int], notes: list[str]) -> str | None:
    parts = [f"{partition}@{offset}" for partition, offset in offsets.items()] + notes
    return f"true at {', '.join(parts)}" if parts else None


def _plain(value: object) -> object:
    """DuckDB's sums are decimals."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return _text(value)


def _shown(value: object) -> str:
    from ottla.cli.terminal.output import for_terminal

    return for_terminal(_text(value))


def _cell(value: object) -> str:
    return json.dumps(value, default=_plain) if isinstance(value, list | dict) else _text(value)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)
