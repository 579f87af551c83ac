"""Views over HTTP: pages in the order of keys, of one version; a row by its key; both with offsets. No Spark runs."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from ottla.connect.sinks.base import Work
from ottla.connect.sinks.delta import DeltaSink
from ottla.pipelines import supervisor
from ottla.pipelines.serve import app

PIPELINE = """
from ottla.pipelines import Pipeline, topic, view
shop = Pipeline("shop")

@shop.step(reads={"a": topic("a")}, writes=view("totals", "tables/totals", keys=["page"]), output_mode="update")
def one(a):
    return a

@shop.step(reads={"a": topic("a")}, writes=view("days", "tables/days", keys=["page", "day"]), output_mode="update")
def two(a):
    return a
"""


def put(path, rows, keys, batch):
    work = Work(
        application="q", version=batch, note={"ottla.batch": str(batch), "ottla.offsets": f'{{"a": {{"0": {batch}}}}}'}
    )
    DeltaSink(str(path), keys=keys).put(pa.Table.from_pylist(rows), work)


@pytest.fixture
def client(tmp_path):
    (tmp_path / "shop.py").write_text(PIPELINE)
    state = tmp_path / "state"
    state.mkdir()
    definition = {"words": [str(tmp_path / "shop.py")], "cwd": str(tmp_path)}
    Path(supervisor.paths(str(state), "shop")[0]).write_text(json.dumps(definition))
    put(tmp_path / "tables/totals", [{"page": f"p/{n:04}", "n": n} for n in reversed(range(2500))], ["page"], 7)
    days = [{"page": page, "day": day, "n": 1} for page in ("a", "b") for day in range(5)]
    put(tmp_path / "tables/days", days, ["page", "day"], 3)
    return TestClient(app(str(state)))


def pages(client, url):
    """All rows, and how many each page had."""
    rows, sizes = [], []
    while url:
        answer = client.get(url).json()
        rows += answer["rows"]
        sizes.append(len(answer["rows"]))
        url = answer["next"]
    return rows, sizes


def test_a_list_reports_that_there_is_more(client, tmp_path):
    """Earlier versions cut a list at 1,000 rows and did not report that."""
    first = client.get("/pipelines/shop/views/totals").json()
    assert (len(first["rows"]), first["total"], first["true_at"]) == (1000, 2500, {"a": {"0": 7}})
    # The pages of one list are of one version.
    put(tmp_path / "tables/totals", [{"page": "p/2400", "n": -1}, {"page": "q", "n": 1}], ["page"], 8)
    rows, sizes = pages(client, "/pipelines/shop/views/totals")
    assert (len(rows), sizes, rows[-1]["page"]) == (2501, [1000, 1000, 501], "q")
    second = client.get(first["next"]).json()
    rest, _ = pages(client, second["next"])
    assert [row["n"] for row in [*first["rows"], *second["rows"], *rest]] == list(range(2500))
    assert second["true_at"] == {"a": {"0": 7}}


def test_pages_by_several_keys(client):
    rows, sizes = pages(client, "/pipelines/shop/views/days?limit=3")
    assert sizes == [3, 3, 3, 1]
    assert [(row["page"], row["day"]) for row in rows] == [(page, day) for page in "ab" for day in range(5)]


def test_a_row_by_its_key(client):
    answer = client.get("/pipelines/shop/views/totals/rows/p/0042")
    assert answer.json() == {"row": {"page": "p/0042", "n": 42}, "true_at": {"a": {"0": 7}}}
    missing = client.get("/pipelines/shop/views/totals/rows/nothing")
    assert missing.status_code == 404
    assert missing.json() == {"message": "the view has no row with the key 'nothing'", "true_at": {"a": {"0": 7}}}
    key = quote(json.dumps({"page": "b", "day": 4}))
    assert client.get(f"/pipelines/shop/views/days/rows/{key}").json()["row"] == {"page": "b", "day": 4, "n": 1}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("days/rows/b", "no key of this view: give a JSON object with page, day"),
        ("totals?after=xyz", "is not the `next` of a page"),
        ("nothing", "has no view nothing"),
        ("nothing/rows/k", "has no view nothing"),
    ],
)
def test_a_wrong_read_is_one_sentence(client, path, words):
    answer = client.get(f"/pipelines/shop/views/{path}")
    assert answer.status_code == 400
    assert words in answer.json()["message"]
