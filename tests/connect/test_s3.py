"""Partitioned Parquet in a real S3 server, each record exactly once; and an object store that is not there."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow.dataset
import pytest

from ottla.connect.sender import Outgoing, Sender
from ottla.connect.sinks.connectors import ParquetSinkConnector
from ottla.connect.sinks.parquet import open_store
from ottla.connect.worker import run_connector
from ottla.model.user_error import UserError
from ottla.testing import Broker
from tests.support.kafka_jars import Unavailable
from tests.support.s3 import KEYS, s3_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    try:
        with s3_server(tmp_path_factory.mktemp("s3")) as made:
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def test_records_become_partitioned_parquet_exactly_once(store, monkeypatch):
    uri = store.uri(f"{store.bucket('lake')}/orders")
    config = {"name": "lake", "connector.class": "parquet-sink", "topics": "orders", "flush.size": "20", "path": uri,
              "partition.by": "country,year"}  # fmt: skip
    rows = [{"n": n, "country": "nl" if n % 3 else "be", "year": 2025 + n % 2} for n in range(100)]
    put, done = ParquetSinkConnector.put, []

    def dying(self, rows, work):
        put(self, rows, work)
        done.append(work)
        if len(done) in {2, 4}:
            raise UserError("killed")  # the objects are there, the offsets are not

    monkeypatch.setattr(ParquetSinkConnector, "put", dying)
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        sender = Sender(client)
        sender.send(Outgoing("orders", None, json.dumps(row).encode()) for row in rows)
        sender.flush()
        for _ in range(2):
            with pytest.raises(UserError, match="killed"):
                run_connector(config, client, once=True)
        run_connector(config, client, once=True)
        files, path = open_store(uri)
        found = pyarrow.dataset.dataset(path, filesystem=files, partitioning="hive").to_table().to_pylist()
        assert Counter(tuple(sorted(row.items())) for row in found) == Counter(
            tuple(sorted(row.items())) for row in rows
        )
        folders = {one.path.removeprefix(f"{path}/").rpartition("/")[0] for one in _objects(files, path)}
        assert folders == {f"country={c}/year={y}" for c in ("nl", "be") for y in (2025, 2026)}


def _objects(files, path):
    from pyarrow.fs import FileSelector

    return [one for one in files.get_file_info(FileSelector(path, recursive=True)) if one.is_file]


def test_a_store_that_refuses_or_is_away_is_one_clear_error(store, monkeypatch):
    rows = pyarrow.table({"n": [1]})
    from ottla.connect.sinks.base import Work
    from ottla.connect.sinks.parquet import ParquetSink

    work = Work(application="a", version=0)
    with pytest.raises(UserError, match="no-such-bucket/x was not written"):
        ParquetSink(store.uri("no-such-bucket/x")).put(rows, work)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(UserError, match="was not written"):
        ParquetSink(store.uri("lake/x")).put(rows, work)
