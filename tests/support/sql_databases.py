"""SQL databases of tests: a file of SQLite, and a schema of one PostgreSQL server that all tests of a process share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.connect.databases import connect_sql
from tests.support.kafka_jars import Unavailable
from tests.support.postgresql import postgresql

_numbers = itertools.count()


def query(uri: str, statement: str) -> list[tuple[Any, ...]]:
    """Runs one statement by itself and returns its rows."""
    connection, _ = connect_sql(uri)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        connection.commit()
    finally:
        connection.close()
    return rows


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    try:
        with postgresql() as address:
            yield address
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def postgresql_uri(postgresql_server: str) -> str:
    """A schema of the test's own."""
    name = f"test_{next(_numbers)}"
    query(postgresql_server, f"create schema {name}")
    return f"{postgresql_server}?options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.interop)])
def sql_uri(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}"
    uri: str = request.getfixturevalue("postgresql_uri")
    return uri
