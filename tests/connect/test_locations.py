"""Every path goes through one resolver: what it accepts, and what it refuses before a row is written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.connect.locations import absolute, locate
from ottla.connect.sinks.base import Work
from ottla.connect.sinks.connectors import DeltaSinkConnector, IcebergSinkConnector, ParquetSinkConnector
from ottla.connect.sinks.delta import read_delta
from ottla.connect.sinks.parquet import ParquetSink
from ottla.model.user_error import UserError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "text", ["out", "./out", "file:{here}/out", "file://{here}/out", "file://localhost{here}/out/"]
)
def test_local_paths(text, tmp_path):
    location = locate(text.format(here=tmp_path))
    assert (location.is_local, location.uri) == (True, f"{tmp_path}/out")
    assert location.file_system()[1] == f"{tmp_path}/out"
    assert absolute(text.format(here=tmp_path)) == f"{tmp_path}/out"


def test_a_colon_in_a_name_is_no_scheme(tmp_path):
    assert locate("a:b/c").uri == f"{tmp_path}/a:b/c"


def test_object_stores(monkeypatch):
    location = locate("s3a://lake/a b/?endpoint=http://127.0.0.1:9&region=eu-1")
    assert location.uri == "s3://lake/a b"
    assert location.file_system()[1] == "lake/a b"
    assert location.storage_options() == {
        "AWS_REGION": "eu-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    assert location.iceberg_properties()["s3.endpoint"] == "http://127.0.0.1:9"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    assert locate("s3://lake").storage_options()["AWS_ENDPOINT_URL"] == "https://store.example"
    assert locate("gs://lake/x").file_system()[1] == "lake/x"
    assert locate("abfs://lake@account.dfs.core.windows.net/x").file_system()[1] == "lake/x"
    assert absolute("hdfs://host/x") == "hdfs://host/x"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ftp://host/x", "has the unknown scheme ftp: use a local path, or file, s3, .* or hdfs"),
        ("dbfs://x/y", "unknown scheme dbfs"),
        ("s3:///x", "names no bucket: write s3://BUCKET/PATH"),
        ("s3a:x", "names no bucket"),
        ("file://host/x", "names the host host: a local folder is file:///PATH"),
    ],
)
def test_what_is_refused(text, problem):
    with pytest.raises(UserError, match=problem):
        locate(text)


def test_no_sink_makes_a_local_folder_of_a_uri(tmp_path):
    """A sink wrote 79,332 records to ./hdfs:/host/x once, and reported success."""
    for make in (
        lambda: DeltaSinkConnector({"path": "ftp://host/x"}),
        lambda: ParquetSinkConnector({"path": "ftp://host/x"}),
        lambda: IcebergSinkConnector(
            {"catalog.uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "ftp://h", "table": "a.b"}
        ),
        lambda: read_delta("ftp://host/x"),
    ):
        with pytest.raises(UserError, match="unknown scheme ftp"):
            make()
    with pytest.raises(UserError, match=r"hdfs://127\.0\.0\.1:9/x cannot be reached"):
        ParquetSink("hdfs://127.0.0.1:9/x").put(pa.table({"n": [1]}), Work(application="a", version=0))
    assert [one.name for one in tmp_path.iterdir() if one.name != "c.db"] == []
