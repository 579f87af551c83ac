"""Libraries that are not part of Ottla: a missing library is named with the command that installs the library."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ottla.model.user_error import UserError

_COMMANDS = {
    "duckdb": "pip install 'ottla[sql]'",
    "pandas": "pip install pandas",
    "polars": "pip install polars",
    "pyarrow": "pip install 'ottla[sql]'",
}


def library(name: str, purpose: str) -> Any:
    """The module. Raises UserError if the module is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise UserError(f"{purpose} needs {name}: {_COMMANDS[name]}") from missing
