"""SQL tables as a source connector: Kafka Connect's JDBC names (mode, incrementing.column.name, timestamp.column.name)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.connect.config import need, number, words
from ottla.connect.connector import Change, Place, Source
from ottla.connect.databases import table_parts
from ottla.connect.sinks.sql import connection_url
from ottla.connect.sources.sql import MODES, read_after
from ottla.model.user_error import UserError


class SqlSource(Source):
    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._url = connection_url(config)
        self._tables = words(config, "table.whitelist") or [need(config, "table.whitelist")]
        self._mode = config.get("mode", "bulk")
        self._prefix = config.get("topic.prefix", "")
        self._most = number(config, "batch.max.rows", 5000)
        if self._mode not in MODES:
            raise UserError(f"mode is one of {', '.join(MODES)}, not {self._mode!r}")

    def poll(self, after: Place | None) -> Sequence[Change]:
        places: Place = dict(after or {})
        changes: list[Change] = []
        for table in self._tables:
            if self._mode == "bulk" and table in places:
                continue
            rows, place = read_after(
                self._url,
                table,
                self._mode,
                incrementing=self.config.get("incrementing.column.name"),
                timestamp=self.config.get("timestamp.column.name"),
                after=places.get(table),
                limit=self._most,
            )
            if rows.num_rows:
                places[table] = place or {"rows": rows.num_rows}
                topic = f"{self._prefix}{table_parts(table)[-1]}"
                changes += [Change(topic=topic, value=row) for row in rows.to_pylist()]
        if changes:
            changes[-1].place = places
        return changes
