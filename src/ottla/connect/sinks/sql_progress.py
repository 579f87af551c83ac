"""The table ottla_progress: the version that each application has reached in a database.

A writer takes its version before it writes, in the transaction of its rows. The row of the application is then locked: a
second writer waits for the first one's commit, finds the version, and writes nothing. A check before the write alone is no
fence, because both writers pass the check.
"""

from __future__ import annotations

from typing import Any

from ottla.connect.databases import Dialect, create_table, transaction
from ottla.connect.sinks.base import Work

PROGRESS = "ottla_progress"


def create_progress(connection: Any, dialect: Dialect) -> None:
    """In a transaction of its own: a lock on the table's creation would hold up every other application."""
    with transaction(connection, dialect) as cursor:
        create_table(cursor, dialect, PROGRESS, "application text primary key, version bigint not null")


def take_version(cursor: Any, dialect: Dialect, work: Work) -> bool:
    """The first statement of the transaction of a work. False if this version or a later one is there."""
    cursor.execute(
        f"insert into {PROGRESS} (application, version) values ({dialect.bound(1)}, {dialect.bound(2)}) "  # noqa: S608 - a constant name
        "on conflict (application) do update set version = excluded.version "
        f"where {PROGRESS}.version < excluded.version returning version",
        (work.application, work.version),
    )
    return bool(cursor.fetchall())


def forget(cursor: Any, dialect: Dialect, application: str) -> None:
    cursor.execute(f"delete from {PROGRESS} where application = {dialect.bound(1)}", (application,))  # noqa: S608 - a constant name


def reached_version(cursor: Any, dialect: Dialect, application: str) -> int | None:
    cursor.execute(
        f"select version from {PROGRESS} where application = {dialect.bound(1)}",  # noqa: S608 - a constant name
        (application,),
    )
    row = cursor.fetchone()
    return None if row is None else int(row[0])
