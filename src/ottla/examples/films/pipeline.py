"""Films: where each viewer stopped, what they like, and the next film to show, while they watch.

Players send a position for each minute, keyed by viewer, over 32 partitions. A title that the catalogue does not have goes
to the dead letters, as a broken record does, and nothing stops.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines import Pipeline, delta, table_of, topic, view

TABLES = os.environ.get("OTTLA_TABLES", "tables")
DEAD = "user.films.positions.dead"
POSITIONS = topic(
    "user.films.positions.json", value="json", schema="viewer string, film string, second int", dead_letter=DEAD
)
CATALOGUE = topic("user.films.catalogue.json", value="json", schema="film string, genre string")
SEEN = "viewer string, film string, genre string, second int, seen long"
WATCHED = topic("user.films.watched.json", value="json", schema=SEEN, key="viewer", partitions=4)
RESUME = view("user.films.resume.json", f"{TABLES}/resume", keys=["viewer", "film"], partitions=2)
PROFILES = view("user.films.profiles.json", f"{TABLES}/profiles", keys=["viewer", "genre"], partitions=2)
PROFILE = "viewer string, genre string, seconds long, film string"

films = Pipeline("films")


@films.step(
    reads={"positions": POSITIONS, "catalogue": table_of(CATALOGUE)},
    writes={"watched": WATCHED, "unknown": topic(DEAD, value="json")},
)
def titles(positions: DataFrame, catalogue: DataFrame) -> dict[str, DataFrame]:
    """`seen` orders the positions of a viewer: a viewer is in one partition."""
    rows = positions.join(F.broadcast(catalogue.select("film", "genre")), "film", "left")
    watched = rows.where("genre is not null").select("viewer", "film", "genre", "second", F.expr("_offset as seen"))
    header = F.struct(
        F.lit("__connect.errors.exception.message").alias("key"), F.lit("unknown title").cast("binary").alias("value")
    )
    unknown = rows.where("genre is null").select("viewer", "film", "second", F.array(header).alias("_headers"))
    return {"watched": watched, "unknown": unknown}


@films.step(reads={"watched": WATCHED}, writes=RESUME, output_mode="update")
def resume(watched: DataFrame) -> DataFrame:
    return watched.groupBy("viewer", "film").agg(F.max_by("second", "seen").alias("second"))


@films.step(reads={"watched": WATCHED, "catalogue": table_of(CATALOGUE)}, writes=PROFILES, output_mode="update")
def profiles(watched: DataFrame, catalogue: DataFrame) -> DataFrame:
    """Seconds by genre, and the first film of the genre that the viewer has not begun."""
    genres = catalogue.groupBy("genre").agg(F.sort_array(F.collect_set("film")).alias("films"))
    liked = watched.join(F.broadcast(genres), "genre").groupBy("viewer", "genre").agg(
        (F.count("*") * 60).alias("seconds"), F.collect_set("film").alias("begun"), F.first("films").alias("films")
    )  # fmt: skip
    left = F.array_except("films", "begun")
    return liked.select("viewer", "genre", "seconds", F.coalesce(F.get(left, 0), F.get("films", 0)).alias("film"))


@films.step(
    reads={"profiles": topic("user.films.profiles.json", value="json", schema=PROFILE)},
    writes=topic("user.films.recommendations.json", value="json", key="viewer", partitions=3),
    output_mode="update",
)
def recommend(profiles: DataFrame) -> DataFrame:
    """From the genre that a viewer watched longest: seconds only grow, so the largest row is the newest of its genre."""
    favourite = profiles.groupBy("viewer").agg(F.max(F.struct("seconds", "genre", "film")).alias("favourite"))
    return favourite.select("viewer", "favourite.film", F.col("favourite.genre").alias("because"))


@films.step(reads={"watched": WATCHED}, writes=delta(f"{TABLES}/watched", partition_by=["genre"]))
def analysis(watched: DataFrame) -> DataFrame:
    return watched.select("viewer", "film", "genre", "second")
