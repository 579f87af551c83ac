"""What test_spark_tables runs on PySpark 4.1.4, the newest version that Delta's and Iceberg's jars run on.

python spark_tables_program.py JARS FOLDER SCENE ...
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from ottla.connect.sinks.base import Work
from ottla.pipelines.build import RunSettings, input_frame
from ottla.pipelines.file_inputs import LISTED_S, FileInputs
from ottla.pipelines.outputs.batch import write_table
from ottla.pipelines.outputs.spark_merge import merge_target
from ottla.pipelines.ports import Delta, Iceberg, Port, SparkTable, delta, iceberg, spark_table
from ottla.pipelines.session import STATE_PARTITIONS
from ottla.pipelines.session import spark as new_session

PLAIN = "id long, name string"
SCHEMA = f"{PLAIN}, _deleted boolean"


@dataclass
class Scene:
    spark: SparkSession
    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)

    def rows(self, *rows: tuple[Any, ...], schema: str = SCHEMA) -> DataFrame:
        return self.spark.createDataFrame(list(rows), schema).repartition(2)

    def upsert(self, port: Port, version: int, *rows: tuple[Any, ...], schema: str = SCHEMA) -> None:
        work = Work(application="query", version=version, note={"ottla.offsets": str(version)})
        write_table(self.rows(*rows, schema=schema), port, work, overwrite=False)


def merge(scene: Scene, port: Delta | Iceberg, read: Any) -> None:
    target = merge_target(scene.spark, port)
    assert target is not None, "the session has the jar"
    scene.upsert(port, 0, (1, "a", False), (2, "b", None), (3, "c", False), (4, "never", True))
    scene.upsert(port, 1, (1, "A", False), (2, None, True), (5, "e", None))
    scene.facts["rows"] = read()
    scene.upsert(port, 1, (1, "replayed", False), (9, "replayed", False))
    scene.upsert(port, 0, (1, "older", False))
    scene.facts["after a replay"] = read()
    scene.upsert(port, 2, (3, 7, False), schema="id long, extra int, _deleted boolean")
    scene.upsert(port, 3)
    scene.upsert(port, 3, (3, 8, True), schema="id long, extra int, _deleted boolean")
    scene.facts["with a new column"] = read()


def delta_merge(scene: Scene) -> None:
    from ottla.connect.sinks.delta import read_delta

    port = delta(str(scene.folder / "a table"), keys=["id"])
    merge(scene, port, lambda: rows_of(scene.spark.read.format("delta").load(port.path)))
    scene.facts["note"] = read_delta(port.path)[1]


def iceberg_merge(scene: Scene) -> None:
    port = iceberg("space.rows", catalog={"spark-catalog": "lake"}, keys=["id"], partition_by=["name"])
    merge(scene, port, lambda: rows_of(scene.spark.table("lake.space.rows")))
    marker = "show tblproperties lake.space.rows ('ottla.version.query')"
    scene.spark.sql("call lake.system.expire_snapshots('space.rows', timestamp '2100-01-01 00:00:00', 1)")
    scene.facts["marker"] = scene.spark.sql(marker).collect()[0]["value"]


def spark_delta(scene: Scene) -> None:
    """Delta's own sink as `spark_table`: a repeated batch changes nothing; as an input, the table of the moment."""
    port = spark_table("delta", {"path": str(scene.folder / "sink")})
    for version in (0, 1, 1, 0):
        scene.upsert(port, version, (version, "a"), schema=PLAIN)
    scene.facts["sink"] = rows_of(input_frame(scene.spark, port, settings(scene)))
    refreshed(scene, port, lambda: scene.upsert(port, 2, (2, "b"), schema=PLAIN))


def spark_iceberg(scene: Scene) -> None:
    """Iceberg's sink has no transactions of applications: a repeated batch appends its rows again."""
    scene.spark.sql("create table lake.space.sink (id long, name string) using iceberg")
    plain_sink(scene, spark_table("iceberg", {"path": "lake.space.sink"}))


def spark_jdbc(scene: Scene) -> None:
    """Spark's JDBC sink commits by task and has no marker."""
    address = {
        "url": os.environ["OTTLA_TEST_JDBC"],
        "user": "ottla",
        "dbtable": "sink",
        "driver": "org.postgresql.Driver",
    }
    plain_sink(scene, spark_table("jdbc", address))


def spark_parquet(scene: Scene) -> None:
    plain_sink(scene, spark_table("parquet", {"path": str(scene.folder / "sink")}))


def plain_sink(scene: Scene, port: SparkTable) -> None:
    for version in (0, 1, 1):
        scene.upsert(port, version, (version, "a"), schema=PLAIN)
    scene.facts["sink"] = rows_of(input_frame(scene.spark, port, settings(scene)))
    refreshed(scene, port, lambda: scene.upsert(port, 2, (2, "b"), schema=PLAIN))


def refreshed(scene: Scene, port: SparkTable, change: Any) -> None:
    """Two batches of a stream that joins the table, and a change of the table between them."""
    source, target = scene.folder / "source", delta(str(scene.folder / "joined"))
    scene.spark.range(1).write.json(str(source))
    stream = scene.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    table, now = input_frame(scene.spark, port, settings(scene)), [0.0]
    lists = FileInputs(clock=lambda: now[0])
    lists.add([table])
    joined = stream.crossJoin(table.groupBy().count().withColumnRenamed("count", "rows")).select("rows")

    def write(frame: DataFrame, batch: int) -> None:
        write_table(frame, target, Work(application="joined", version=batch), overwrite=False)

    query = joined.writeStream.foreachBatch(write).option("checkpointLocation", f"{scene.folder}/checkpoint").start()
    try:
        query.processAllAvailable()
        change()
        now[0] += LISTED_S
        lists.refresh([])
        scene.spark.range(1).write.mode("append").json(str(source))
        query.processAllAvailable()
    finally:
        query.stop()
    from ottla.connect.sinks.delta import read_delta

    scene.facts["rows of the table by batch"] = sorted(row["rows"] for row in read_delta(target.path)[0].to_pylist())


def settings(scene: Scene) -> RunSettings:
    return RunSettings(bootstrap_servers="127.0.0.1:1", checkpoints=f"{scene.folder}/checkpoint")


def rows_of(frame: DataFrame) -> list[list[Any]]:
    return sorted((list(row) for row in frame.collect()), key=str)


SCENES = {scene.__name__: scene for scene in (delta_merge, iceberg_merge, spark_delta, spark_iceberg, spark_jdbc)}


def main() -> None:
    assert pyspark.__version__.startswith("4.1."), pyspark.__version__
    jars, folder, *names = sys.argv[1:]
    settings = {"spark.jars": jars, STATE_PARTITIONS: "1", "spark.default.parallelism": "1"}
    if "delta" in jars:
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        settings["spark.databricks.delta.snapshotPartitions"] = "1"
    else:
        settings["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        settings["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
        settings["spark.sql.catalog.lake.type"] = "hadoop"
        settings["spark.sql.catalog.lake.warehouse"] = f"{folder}/lake"
    spark = new_session("local[2]", low_footprint=True, config=settings)
    answers = {}
    for name in names:
        scene = Scene(spark, Path(folder, name))
        scene.folder.mkdir()
        SCENES[name](scene)
        answers[name] = scene.facts
    print("facts:", json.dumps(answers))
    spark.stop()


if __name__ == "__main__":
    main()
