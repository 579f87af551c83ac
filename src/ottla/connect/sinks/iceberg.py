"""Iceberg tables by pyiceberg (a SQL catalog). A snapshot's property names its work, so that no work comes twice."""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow as pa

from ottla.connect.locations import locate
from ottla.connect.sinks.base import Work, of_known_types, without_deleted
from ottla.model.extras import require
from ottla.model.user_error import UserError

COMMIT_TRIES = 20
_PROPERTY = "ottla.version."


def without_own_retry(table: Any) -> Any:
    """The table without pyiceberg's own retry of a commit: that retry would append work that is there meanwhile."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def pause(number: int) -> None:
    """After a commit that another writer was faster than."""
    time.sleep(random.uniform(0, 0.05 * (number + 1)))  # noqa: S311 - a pause


class IcebergSink:
    def __init__(self, catalog_uri: str, warehouse: str, table: str) -> None:
        require("an Iceberg table", "pyiceberg")
        from pyiceberg.catalog.sql import SqlCatalog

        namespace, _, name = table.rpartition(".")
        if not namespace or not name:
            raise UserError(f"an Iceberg table is NAMESPACE.NAME, not {table!r}")
        self._name = table
        self._catalog = SqlCatalog("ottla", uri=catalog_uri, **locate(warehouse).iceberg_properties())
        self._catalog.create_namespace_if_not_exists(namespace)

    def put(self, rows: pa.Table, work: Work) -> bool:
        from pyiceberg.exceptions import (
            CommitFailedException,
            CommitStateUnknownException,
            ResolveError,
            ValidationError,
        )

        kept = of_known_types(without_deleted(rows)[0])
        for number in range(COMMIT_TRIES):
            last = self.reached(work.application)
            if last is not None and last >= work.version:
                return False
            try:
                table = without_own_retry(self._catalog.create_table_if_not_exists(self._name, kept.schema))
                with table.transaction() as change:
                    with change.update_schema() as columns:  # new ones are added, a number may become a wider one
                        columns.union_by_name(kept.schema)
                    change.append(kept, snapshot_properties=self._properties(work))
            except CommitFailedException:
                pause(number)
            except (ValueError, OSError, CommitStateUnknownException, ResolveError, ValidationError) as problem:
                words = str(problem).splitlines()[0]
                raise UserError(f"the Iceberg table {self._name} was not written: {words}") from problem
            else:
                return True
        raise UserError(f"the Iceberg table {self._name} was not written: others change it all the time")

    @staticmethod
    def _properties(work: Work) -> dict[str, str]:
        return {f"{_PROPERTY}{work.application}": str(work.version), **work.note}

    def reached(self, application: str) -> int | None:
        if not self._catalog.table_exists(self._name):
            return None
        snapshots: list[Any] = list(self._catalog.load_table(self._name).snapshots())
        for snapshot in reversed(snapshots):
            marker = snapshot.summary.get(f"{_PROPERTY}{application}") if snapshot.summary else None
            if marker is not None:
                return int(marker)
        return None

    def close(self) -> None:
        return
