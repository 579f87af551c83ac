"""The one message about a library that does not come with Ottla alone."""

import tomllib
from pathlib import Path

import pytest

from ottla.model.extras import INSTALLATION, extra_needed, missing_extra
from ottla.model.user_error import UserError

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_message_names_purpose_library_and_command():
    assert str(missing_extra("duckdb", "SQL over topics")) == (
        "SQL over topics needs duckdb, which is not installed: pip install 'ottla[sql]'"
    )


def test_a_failed_import_becomes_the_message():
    with pytest.raises(UserError, match=r"^an export needs pyarrow, .*'ottla\[sql\]'$"), extra_needed("an export"):
        raise ModuleNotFoundError("No module named 'pyarrow.parquet'", name="pyarrow.parquet")


def test_a_failed_import_of_our_own_is_a_defect():
    with pytest.raises(ModuleNotFoundError), extra_needed("an export"):
        raise ModuleNotFoundError("No module named 'ottla.nothing'", name="ottla.nothing")


def test_every_extra_of_the_table_is_in_the_metadata():
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    named = {text.strip("'")[len("ottla[") : -1] for text in INSTALLATION.values() if text.startswith("'ottla[")}
    assert named <= extras.keys()
