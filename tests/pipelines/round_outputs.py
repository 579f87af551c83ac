"""What the rounds write and read back: the feed of inputs, the places of outputs, and the verdict over all of them."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.delta import read_delta
from ottla.connect.sinks.parquet import open_store
from ottla.connect.sources.sql import read_table
from ottla.model.user_error import UserError
from ottla.pipelines.outputs.iceberg import catalog_properties
from ottla.tables.query import topic_table
from tests.support.apache_kafka import ApacheKafka
from tests.support.s3 import KEYS, S3

WORDS = ("log", "table", "stream", "state")
CUSTOMERS = tuple(f"c{number}" for number in range(6))
EMPTY = pa.table({"n": pa.array([], pa.int64())})


@dataclass(frozen=True)
class Outputs:
    """Where the pipeline writes what is no topic."""

    folder: Path
    database: str
    parquet: str
    suffix: str = ""
    """Of the output topics."""
    delta: str = ""
    catalog: dict[str, str] = field(default_factory=dict)
    """Of Iceberg; with a catalog the pipeline has all its steps."""
    trigger: str = "1 second"

    @classmethod
    def local(cls, folder: Path, suffix: str = "") -> Outputs:
        folder.mkdir(parents=True)
        return cls(folder, f"sqlite:///{folder}/rows.db", str(folder / "parquet"), suffix, f"{folder}/delta")

    @classmethod
    def everything(cls, folder: Path, database: str, store: S3 | None) -> Outputs:
        folder.mkdir(parents=True)
        places = {name: f"{folder}/{name}" for name in ("parquet", "delta", "lake")}
        if store is not None:
            places = {name: store.uri(f"{store.bucket('rows')}/{name}") for name in places}
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": places["lake"]}
        return cls(folder, database, places["parquet"], "", places["delta"], catalog, "5 seconds")

    @property
    def people(self) -> str:
        return self.delta.replace("delta", "people")

    def variables(self) -> dict[str, str]:
        names = {
            "OUT": str(self.folder),
            "DATABASE": self.database,
            "PARQUET": self.parquet,
            "SUFFIX": self.suffix,
            "DELTA": self.delta or f"{self.folder}/delta",
            "PEOPLE": self.people,
            "CATALOG": json.dumps(self.catalog) if self.catalog else "",
            "TRIGGER": self.trigger,
        }
        return {f"OTTLA_TEST_{name}": value for name, value in names.items()}


@contextmanager
def in_environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


s3_keys = {**KEYS, "AWS_EC2_METADATA_DISABLED": "true"}


class Feed:
    """Inputs, and what they must become."""

    def __init__(self, server: ApacheKafka, draw: random.Random) -> None:
        self._client = {"bootstrap.servers": server.bootstrap_servers}
        self._draw = draw
        self.rows: dict[int, str] = {}
        self.bad: list[bytes] = []
        self.versions: dict[str, int] = {}
        self.levels: dict[str, int | None] = {}
        self.extra: list[int] = []

    def send_rows(self, count: int, bad: int = 0) -> None:
        records = []
        for number in range(len(self.rows), len(self.rows) + count):
            self.rows[number] = self._draw.choice(WORDS)
            row = {"n": number, "word": self.rows[number], "customer": self._draw.choice(CUSTOMERS)}
            records.append(json.dumps(row).encode())
        for _ in range(bad):
            self.bad.append(b"{bad %d" % len(self.bad))
            records.insert(self._draw.randrange(len(records) + 1), self.bad[-1])
        self._send(Outgoing("in", None, record) for record in records)

    def send_customers(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.versions[name] = self.versions.get(name, 0) + 1
        self._send(Outgoing("customers", name.encode(), b'{"version": %d}' % self.versions[name]) for name in names)

    def send_levels(self, names: tuple[str, ...]) -> None:
        """A fifth of the levels are deleted."""
        records = []
        for name in names:
            level = None if self._draw.random() < 0.2 else self._draw.randrange(1 << 40)
            self.levels[name] = level
            value = None if level is None else b'{"level": %d}' % level
            records.append(Outgoing("levels", name.encode(), value))
        self._send(records)

    def send_extra(self, count: int) -> None:
        numbers = range(len(self.extra), len(self.extra) + count)
        self.extra += numbers
        self._send(Outgoing("extra", None, b'{"n": %d}' % number) for number in numbers)

    def _send(self, records: Any) -> None:
        sender = Sender(self._client)
        sender.send(iter(records))
        sender.flush()


class Verdict:
    """Differences between the outputs and the feed. A surplus is wrong at any time, a lack only when all is at rest."""

    def __init__(self) -> None:
        self.surplus: list[str] = []
        self.lack: list[str] = []

    def numbers(self, output: str, read: list[Any], expected: Any) -> None:
        counted, right = Counter(read), Counter(list(expected))
        self._note(self.surplus, output, "too many", counted - right)
        self._note(self.lack, output, "missing", right - counted)

    def equal(self, output: str, read: Any, expected: Any) -> None:
        """Of what changes until all is at rest."""
        if read != expected:
            self.lack.append(f"{output}: {read} instead of {expected}"[:600])

    def wrong(self, output: str, problems: list[Any]) -> None:
        if problems:
            self.surplus.append(f"{output}: {problems[:5]}")

    def _note(self, notes: list[str], output: str, what: str, rows: Counter[Any]) -> None:
        if rows:
            notes.append(f"{output}: {rows.total()} {what}: {dict(list(rows.items())[:8])}")

    def __str__(self) -> str:
        return "; ".join([*self.surplus, *self.lack]) or "every input once in every output"


def verdict(server: ApacheKafka, outputs: Outputs, feed: Feed) -> Verdict:
    """Reads every output."""
    client = {"bootstrap.servers": server.bootstrap_servers}
    found = Verdict()
    words = {word.upper(): 0 for word in WORDS} | Counter(word.upper() for word in feed.rows.values())
    written = [json.loads(row["value"]) for row in topic_table(client, f"out{outputs.suffix}").to_pylist()]
    found.numbers("topic", [(row["n"], row["word"]) for row in written], [(n, w.upper()) for n, w in feed.rows.items()])
    counts = topic_table(client, f"counts{outputs.suffix}").to_pylist()
    totals = {row["word"]: row["c"] for row in (json.loads(row["value"]) for row in counts)}
    found.equal("aggregate", totals, {word: count for word, count in words.items() if count})
    found.wrong("aggregate, written again", _repeated(counts, lambda value: json.loads(value)["c"]))
    found.numbers("Delta", _read(lambda: read_delta(outputs.delta)[0]).column("n").to_pylist(), feed.rows)
    found.numbers("SQL", _read(lambda: read_table(outputs.database, "rows")).column("n").to_pylist(), feed.rows)
    files = _files(outputs.parquet)
    found.numbers("files", files, feed.rows.items())
    if outputs.catalog:
        _check_everything(client, outputs, feed, found)
    return found


def _check_everything(client: dict[str, str], outputs: Outputs, feed: Feed, found: Verdict) -> None:
    matched = _read(lambda: _iceberg(outputs.catalog)).to_pylist()
    found.numbers("Iceberg", [row["n"] for row in matched], feed.rows)
    found.wrong(
        "stream-table join",
        [row for row in matched if not 1 <= (row["version"] or 0) <= feed.versions[row["customer"]]],
    )
    letters = topic_table(client, "letters").to_pylist()
    found.numbers("dead letters", [row["value"] for row in letters], feed.bad)
    found.numbers(
        "topic that is created again",
        [json.loads(row["value"])["n"] for row in topic_table(client, "extra-out").to_pylist()],
        feed.extra,
    )
    people = {
        name: {"customer": name, "version": feed.versions[name], "level": level}
        for name, level in feed.levels.items()
        if level is not None and name in feed.versions
    }
    changes = topic_table(client, "people").to_pylist()
    newest = {row["key"].decode(): row["value"] and json.loads(row["value"]) for row in changes}
    found.equal("view's topic", {name: row for name, row in newest.items() if row}, people)
    rows = _read(lambda: read_delta(outputs.people)[0]).to_pylist()
    found.equal("view's table", {row.get("customer"): row for row in rows}, people)
    found.wrong("view's table, keys", [row for row in rows if sum(row == other for other in rows) > 1])


def _repeated(records: list[dict[str, Any]], number: Any) -> list[Any]:
    """Records of a key whose number does not rise."""
    by_key: dict[bytes, list[Any]] = {}
    for record in records:
        by_key.setdefault(record["key"], []).append(number(record["value"]))
    return [
        (key, before, after)
        for key, numbers in by_key.items()
        for before, after in pairwise(numbers)
        if after <= before
    ]


def _read(table: Any) -> pa.Table:
    """Empty if the table is not there yet."""
    try:
        return table()
    except UserError as problem:
        if "there is no" in str(problem) or "does not exist" in str(problem):
            return EMPTY
        raise


def _iceberg(properties: dict[str, str]) -> pa.Table:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return load_catalog("ottla", **catalog_properties(properties)).load_table("lake.matched").scan().to_arrow()
    except NoSuchTableError:
        return EMPTY


def _files(place: str) -> list[tuple[int, str]]:
    """Rows with their folder's word."""
    store, path = open_store(place)
    try:
        rows = pyarrow.dataset.dataset(path, filesystem=store, partitioning="hive").to_table()
    except FileNotFoundError:
        return []
    if "n" not in rows.column_names:
        return []
    return list(zip(rows.column("n").to_pylist(), rows.column("word").to_pylist(), strict=True))
