"""The code cells of examples/notebooks/topics.ipynb, run in order in one namespace as Jupyter does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/notebooks/topics.ipynb"


def cells() -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in codes), "the file holds no results"
    return ["".join(cell["source"]) for cell in codes]


def test_every_cell_of_the_notebook() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("duckdb")
    first, *middle, last = cells()
    names: dict[str, Any] = {}
    try:
        for text in (first, *middle):
            exec(compile(text, NOTEBOOK.name, "exec"), names)  # the point of the test
    finally:
        exec(last, names)
    assert names["frame"]["total"].sum() == sum(number * 1.5 for number in range(12))
    assert names["largest"] is not None
    assert names["news"].to_arrow()["id"].to_pylist() == [12]
    assert names["table"].to_arrow().num_rows == 12, "a table keeps its end"
