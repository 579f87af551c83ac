"""Stores and databases that cannot be used: one sentence that says what to do, and nothing that a reader sees."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.connect.databases import connect_sql
from ottla.model.user_error import UserError
from ottla.pipelines import Pipeline, spark_table, topic
from ottla.pipelines.analysis import problems
from ottla.pipelines.build import RunSettings
from ottla.pipelines.hadoop_files import _unreachable
from tests.pipelines import attempts
from tests.support.kafka_jars import Unavailable
from tests.support.postgresql import postgresql
from tests.support.s3 import KEYS, s3_server

pytestmark = pytest.mark.timeout(600)
KEYS_HELP = (
    "the store refuses the login: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the driver"
)
NO_BUCKET = "the bucket does not exist, or its name is not the login's to see: create the bucket, or correct the path"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    try:
        with s3_server(tmp_path_factory.mktemp("s3")) as server:
            server.bucket("lake")
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def options(kind, uri, folder):
    if kind == "iceberg":
        return {"table": "a.b", "catalog.uri": f"sqlite:///{folder}/c.db", "catalog.warehouse": uri}
    return {"path": uri}


def refused(kind, **where):
    with pytest.raises(UserError) as problem:
        attempts.run(kind, 0, [attempts.batch(1)], **where)
    assert len(str(problem.value).splitlines()) == 1
    return str(problem.value)


@pytest.mark.parametrize("kind", ["delta", "files", "iceberg"])
def test_a_bucket_that_is_gone_and_keys_that_are_wrong(store, kind, tmp_path, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert NO_BUCKET in refused(kind, **options(kind, store.uri("gone/table"), tmp_path))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert KEYS_HELP in refused(kind, **options(kind, store.uri("lake/table"), tmp_path))
    assert not (store.root / "lake" / "table").exists()


def test_a_store_that_is_away(monkeypatch, tmp_path):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    rest = {"table": "a.b", "catalog.uri": "http://127.0.0.1:9", "catalog.type": "rest"}
    assert "nothing answers at the address: check it" in refused("iceberg", **rest)


@contextmanager
def with_passwords():
    """A server on which the user app has the password right."""
    with postgresql() as address:
        connection, _ = connect_sql(address)
        with connection.cursor() as cursor:
            cursor.execute("create role app login password 'right'")
            cursor.execute("grant create on schema public to app")
            cursor.execute("select setting from pg_settings where name = 'hba_file'")
            rules = Path(cursor.fetchone()[0])
            connection.commit()
            rules.write_text(f"host all app 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
            cursor.execute("select pg_reload_conf()")
            connection.commit()
        connection.close()
        yield address.replace("ottla@", "app:right@")


def test_a_database_with_another_password_or_name():
    try:
        with with_passwords() as address:
            table = {"dbtable": "rows"}
            attempts.run("sql", 0, [attempts.batch(1)], url=address, **table)
            wrong = refused("sql", url=address.replace(":right@", ":wrong@"), **table)
            assert (
                'password authentication failed for user "app"; check the user and the password in the address' in wrong
            )
            assert "wrong@" not in wrong
            missing = refused("sql", url=address.replace("/postgres", "/nowhere"), **table)
            assert 'database "nowhere" does not exist; create it, or correct the address' in missing
    except Unavailable as reason:
        pytest.skip(str(reason))
    away = refused("sql", url="postgresql://app:x@127.0.0.1:9/postgres", dbtable="rows")
    assert "check the address, and whether the database runs" in away


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://gone/x': Bucket does not exist",
            "does not exist: create it",
        ),
        (
            "java.nio.file.AccessDeniedException: s3a://b/x: SignatureDoesNotMatch (403)",
            "refuses the login: check its settings",
        ),
        ("org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException: no provider", "spark.hadoop.fs.s3a.access.key"),
    ],
)
def test_a_checkpoint_store_that_refuses(reason, words):
    assert words in _unreachable("s3a://b/x", RuntimeError(reason))


def test_a_format_without_its_jar_and_a_column_that_is_gone(spark):
    numbers = topic("numbers", value="json", schema="n long, word string")

    def analysed(function, writes):
        made = Pipeline("bad")
        made.step(reads={"rows": numbers}, writes=writes)(function)
        return problems(spark, made, RunSettings(bootstrap_servers="127.0.0.1:9", checkpoints=""))

    (reason,) = analysed(lambda rows: rows, spark_table("delta", {"path": "x"}))
    assert "this Spark has no format delta: add its jar with --conf spark.jars.packages=" in reason
    assert not Path("x").exists()
    assert analysed(lambda rows: rows, spark_table("parquet", {"path": "x"})) == []
    (reason,) = analysed(lambda rows: rows.select("wort"), topic("out", value="json"))
    assert "there is no column wort (" in reason
    assert "word" in reason
    assert reason.endswith(": correct the step, or the schema of its input")
