"""Views over HTTP: pages in the order of keys, of one version; a row by its key; both with offsets. No Spark runs."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from starlette.testclient import TestClient

from ottla.connect.sinks.base import Work
from ottla.connect.sinks.delta import DeltaSink
from ottla.pipelines import supervisor, view_reads
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


@pytest.fixture
def keyed_by_name(client, tmp_path):
    """A view `totals` of other rows."""

    def written(rows, batch=1):
        table = tmp_path / "tables/totals"
        if batch == 1:
            for file in [*table.glob("_delta_log/*"), *table.glob("*.parquet")]:
                file.unlink()
        put(table, rows, ["page"], batch)

    return written


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
        ("days/rows/b", "is not a key of this view: give a JSON object with page, day"),
        ("totals?after=xyz", "is not the `next` of a page"),
        ("nothing", "has no view nothing"),
        ("nothing/rows/k", "has no view nothing"),
    ],
)
def test_a_wrong_read_is_one_sentence(client, path, words):
    answer = client.get(f"/pipelines/shop/views/{path}")
    assert answer.status_code == 400
    assert words in answer.json()["message"]


ODD_KEYS = ["a/b", "a//b", "../x", "..", ".", "", " ", "\u00fc\u20ac\U0001f600", "it's", '"', "a?b#c", "a+b", "\n", "a\nb", "\x00",
            "x" * 3000, "a\\b", "null", "None", None]  # fmt: skip


def test_every_text_is_a_key(client, keyed_by_name):
    keyed_by_name([{"page": key, "n": number} for number, key in enumerate(ODD_KEYS)])
    for number, key in enumerate(ODD_KEYS[:-1]):
        answer = client.get("/pipelines/shop/views/totals/rows", params={"key": key})
        assert answer.json()["row"] == {"page": key, "n": number}
        if key not in {".", ".."}:  # a client makes another path of these
            row = client.get(f"/pipelines/shop/views/totals/rows/{quote(key, safe='')}").json()["row"]
            assert row == {"page": key, "n": number}
    assert client.get("/pipelines/shop/views/totals/rows", params={"key": "\n\n"}).status_code == 404


def test_no_row_is_left_out_of_small_pages(client, keyed_by_name):
    """A key that is null was on no page but the first; it is the last key."""
    keyed_by_name([{"page": key, "n": number} for number, key in enumerate(ODD_KEYS)])
    rows, sizes = pages(client, "/pipelines/shop/views/totals?limit=1")
    assert sizes == [1] * len(ODD_KEYS)
    assert [row["page"] for row in rows] == [*sorted(ODD_KEYS[:-1]), None]


KEYS = {
    "long": ([-5, 1, 2, None], "1", "x"),
    "boolean": ([False, True, None], "true", "maybe"),
    "bytes": ([b"", b"\x00\xff", b"ab", None], "AP8=", "a%b"),
    "double": ([-0.5, 0.1, 3.0, None], "0.1", "x"),
    "decimal": ([decimal.Decimal("1.10"), decimal.Decimal("2.00"), None], "1.1", "x"),
    "date": ([dt.date(2026, 1, 1), dt.date(2026, 1, 2), None], "2026-01-01", "x"),
    "time": ([dt.datetime(2026, 1, 1, 0, 0, 0, n, tzinfo=dt.UTC) for n in (0, 5)], "2026-01-01T00:00:00Z", "x"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_other_types(client, keyed_by_name, kind):
    values, key, wrong = KEYS[kind]
    keyed_by_name([{"page": value, "n": number} for number, value in enumerate(values)])
    rows, _ = pages(client, "/pipelines/shop/views/totals?limit=1")
    assert [row["n"] for row in rows] == list(range(len(values)))
    answer = client.get("/pipelines/shop/views/totals/rows", params={"key": key})
    assert answer.status_code == 200, answer.text
    refused = client.get("/pipelines/shop/views/totals/rows", params={"key": wrong})
    assert refused.status_code == 400
    assert f"'{wrong}' is not a key of this view: the column page has the type" in refused.json()["message"]


def test_a_part_of_a_key_may_be_null(client, tmp_path):
    put(
        tmp_path / "tables/days",
        [{"page": "c", "day": None, "n": 9}, {"page": None, "day": 1, "n": 8}],
        ["page", "day"],
        4,
    )
    rows, _ = pages(client, "/pipelines/shop/views/days?limit=1")
    assert [(row["page"], row["day"]) for row in rows[-2:]] == [("c", None), (None, 1)]
    assert len(rows) == 12
    for key, n in (({"page": "c", "day": None}, 9), ({"page": None, "day": 1}, 8)):
        answer = client.get("/pipelines/shop/views/days/rows", params={"key": json.dumps(key)})
        assert answer.json()["row"]["n"] == n


def test_values_that_json_does_not_have(client, keyed_by_name):
    keyed_by_name([{"page": "a", "raw": b"\xff\x00", "ratio": float("nan"), "parts": [float("inf"), 1.0]}])
    answer = client.get("/pipelines/shop/views/totals/rows/a")
    assert json.loads(answer.text, parse_constant=pytest.fail)["row"] == {
        "page": "a", "raw": "/wA=", "ratio": "NaN", "parts": ["Infinity", 1.0],
    }  # fmt: skip


def test_the_offsets_are_those_of_the_version_that_was_read(client, keyed_by_name, monkeypatch):
    """A batch that is committed between the read of the rows and that of the offsets changes neither."""
    keyed_by_name([{"page": "a", "n": 1}])
    true_at = view_reads._true_at

    def later(table):
        keyed_by_name([{"page": "a", "n": 2}], 2)
        return true_at(table)

    monkeypatch.setattr(view_reads, "_true_at", later)
    assert client.get("/pipelines/shop/views/totals/rows/a").json() == {
        "row": {"page": "a", "n": 1}, "true_at": {"a": {"0": 1}},
    }  # fmt: skip


def test_offsets_are_found_behind_commits_without_a_batch(client, keyed_by_name, tmp_path):
    keyed_by_name([{"page": "a", "n": 1}])
    for _ in range(4):  # as a compaction does
        DeltaTable(str(tmp_path / "tables/totals")).alter.set_table_properties({"delta.appendOnly": "false"})
    assert client.get("/pipelines/shop/views/totals/rows/a").json()["true_at"] == {"a": {"0": 1}}


def test_a_page_whose_files_are_gone(client, keyed_by_name, tmp_path):
    keyed_by_name([{"page": "a", "n": 1}, {"page": "b", "n": 1}])
    first = client.get("/pipelines/shop/views/totals?limit=1").json()
    keyed_by_name([{"page": "a", "n": 2}, {"page": "b", "n": 2}], 2)
    table = DeltaTable(str(tmp_path / "tables/totals"))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    answer = client.get(first["next"])
    assert answer.status_code == 400
    assert "the view cannot be read" in answer.json()["message"]


def after(content: str) -> str:
    return "after=" + base64.urlsafe_b64encode(content.encode()).decode()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", "from 1 to 100000, not 0"),
        ("limit=100001", "from 1 to 100000, not 100001"),
        ("limit=x", "`limit` is a whole number, not 'x'"),
        (f"limit={'9' * 5000}", "`limit` is a whole number"),
        (after('[-1, ["x"]]'), "is not the `next`"),
        (after('[true, ["x"]]'), "is not the `next`"),
        (after('[0, "x"]'), "is not the `next`"),
        (after("[0, [5]]"), "is not the `next`"),
        (after("[" * 20_000), "is not the `next`"),
        (after('[99999, ["x"]]'), "version 99999 is gone"),
    ],
    ids=lambda text: text[:20],
)
def test_a_page_that_is_none(client, query, words):
    answer = client.get(f"/pipelines/shop/views/totals?{query}")
    assert answer.status_code == 400
    assert words in answer.json()["message"]
