"""The demo's two pipelines: plain functions from DataFrame to DataFrame, with what they read and write."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, delta, sql_table, topic, view

LINE = r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+) "[^"]*" "([^"]*)"$'
HIT = "ip string, at timestamp, method string, page string, status int, bytes long, agent string"
READING = "device string, celsius double, at timestamp"


def parse(lines: DataFrame) -> dict[str, DataFrame]:
    """Lines to hits; what is no access line goes to a topic of its own."""
    parts = [F.regexp_extract("value", LINE, number).alias(str(number)) for number in range(1, 8)]
    split = lines.select("value", F.col("value").rlike(LINE).alias("is_hit"), *parts)
    hits = split.where("is_hit").select(
        F.col("1").alias("ip"),
        F.to_timestamp("2", "dd/MMM/yyyy:HH:mm:ss Z").alias("at"),
        F.col("3").alias("method"),
        F.col("4").alias("page"),
        F.col("5").cast("int").alias("status"),
        F.col("6").cast("long").alias("bytes"),
        F.col("7").alias("agent"),
    )
    return {"hits": hits, "noise": split.where("not is_hit").select("value")}


def sessions(hits: DataFrame) -> DataFrame:
    """Visits: hits of one address with less than 20 s between them; late hits still count for a minute."""
    window = F.session_window("at", "20 seconds")
    counted = hits.withWatermark("at", "1 minute").groupBy("ip", window).agg(
        F.count("*").alias("hits"), F.sum("bytes").alias("bytes")
    )  # fmt: skip
    return counted.select(
        "ip", F.col("session_window.start").alias("begin"), F.col("session_window.end").alias("end"), "hits", "bytes"
    )


def per_minute(hits: DataFrame) -> DataFrame:
    counted = hits.groupBy(F.window("at", "1 minute")).agg(
        F.count("*").alias("hits"), F.sum(F.expr("int(status >= 500)")).alias("errors")
    )
    return counted.select(F.date_format("window.start", "yyyy-MM-dd HH:mm").alias("minute"), "hits", "errors")


def top_pages(hits: DataFrame) -> DataFrame:
    return hits.groupBy("page").agg(F.count("*").alias("hits"), F.sum("bytes").alias("bytes"))


def alerts(hits: DataFrame) -> DataFrame:
    """A minute with ten or more server errors."""
    bad = hits.where("status >= 500").groupBy(F.window("at", "1 minute")).agg(F.count("*").alias("errors"))
    return bad.where("errors >= 10").select(F.date_format("window.start", "yyyy-MM-dd HH:mm").alias("minute"), "errors")


def rooms(readings: DataFrame, devices: DataFrame) -> DataFrame:
    """Readings, each with the room and floor that the table in SQLite knows for its device."""
    return readings.join(devices, "device").select("device", "room", "floor", "celsius", "at")


def climate(enriched: DataFrame) -> DataFrame:
    grouped = enriched.groupBy("room").agg(
        F.count("*").alias("readings"), F.round(F.avg("celsius"), 2).alias("mean"), F.max("celsius").alias("highest")
    )
    return grouped.select("room", "readings", "mean", "highest")


def pipelines(folder: Path) -> list[Pipeline]:
    database = f"sqlite:///{folder / 'results.db'}"
    hits = topic("hits", value="json", schema=HIT, key="ip")
    web = Pipeline("web")
    web.step(
        reads={"lines": topic("access-log", value="text")},
        writes={"hits": hits, "noise": topic("access-log.noise", value="text")},
    )(parse)
    web.step(reads={"hits": hits}, writes=delta(str(folder / "sessions")))(sessions)
    web.step(
        reads={"hits": hits},
        writes=view("hits-per-minute", str(folder / "per_minute"), keys=["minute"]),
        output_mode="update",
    )(per_minute)
    web.step(reads={"hits": hits}, writes=sql_table(database, "top_pages", keys=["page"]), output_mode="update")(
        top_pages
    )
    web.step(reads={"hits": hits}, writes=topic("alerts", value="json", key="minute"), output_mode="update")(alerts)
    home = Pipeline("home")
    enriched = topic(
        "readings",
        value="json",
        schema="device string, room string, floor int, celsius double, at timestamp",
        key="room",
    )
    home.step(
        reads={
            "readings": topic("thermostats", value="json", schema=READING, dead_letter="thermostats.broken"),
            "devices": sql_table(database, "devices"),
        },
        writes=enriched,
    )(rooms)
    home.step(reads={"enriched": enriched}, writes=sql_table(database, "climate", keys=["room"]), output_mode="update")(
        climate
    )
    return [web, home]
