"""Rows as files of JSON lines: a sink connector of one's own.

name: mail-files
connector.class: lines_sink:LinesSink
topics: mail
folder: out
"""

import json
from pathlib import Path

import pyarrow as pa

from ottla.connect.config import need
from ottla.connect.connector import Sink
from ottla.connect.sinks.base import Work


class LinesSink(Sink):
    """One file for each piece of work: a piece that comes again replaces its file, so no row is there twice."""

    def put(self, rows: pa.Table, work: Work) -> None:
        folder = Path(need(self.config, "folder"))
        folder.mkdir(exist_ok=True)
        path = folder / f"{work.application}-{work.version:012d}.jsonl"
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
        fresh.replace(path)
