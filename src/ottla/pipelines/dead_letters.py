"""Dead letters: one for each bad record and input of a pipeline. An input is a topic with a format, however many steps read it.

A streaming query for each input reads the topic for all steps, with a checkpoint of its own. So a new step, or a step that
starts again, repeats no letter, and the letters are exactly once as every output is.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from ottla.pipelines.checkpoints import LETTER_FORMATS, Checkpoint, scheme_of
from ottla.pipelines.codecs import decoded
from ottla.pipelines.pipeline import Step
from ottla.pipelines.ports import Topic, TopicTable

ERROR_HEADERS = ("topic", "partition", "offset", "stage", "class.name", "exception.class.name", "exception.message")
"""Kafka Connect's names, each under `__connect.errors.`."""


@dataclass(slots=True, kw_only=True)
class LetterQuery:
    """What writes the bad records of one input to its dead-letter topic."""

    step: Step
    """The first step that reads the input: its trigger is used, and failures are reported as failures of that step."""
    topic: Topic
    dead_letter: str
    name: str
    whole: bool = False
    """A step reads the topic as a table, from its beginning."""
    readers: list[str] = field(default_factory=list)
    """STEP.PARAMETER of all that read the input."""

    def add(self, port: Topic, reader: str, *, whole: bool) -> None:
        if whole or port.starting == "earliest":
            self.topic = replace(self.topic, starting="earliest")
        self.whole |= whole
        self.readers.append(reader)


def letter_queries(steps: Iterable[Step]) -> list[LetterQuery]:
    """Bytes have no bad records. Options come from the first step that reads the input; of two places to start, the
    beginning counts.

    The first format of a topic has the query TOPIC~DEAD_LETTER, so that a renamed step or a changed schema goes on where
    the letters ended. A further format has its first reader in the name, too. A tilde is in no name of a topic or step.
    These are the names of a new pipeline (`with_stored_names`).
    """
    queries: list[LetterQuery] = []
    for step in steps:
        for parameter, port in step.reads.items():
            topic = port.topic if isinstance(port, TopicTable) else port
            if not isinstance(topic, Topic) or topic.dead_letter is None or topic.value.kind == "bytes":
                continue
            reader, name = f"{step.name}.{parameter}", f"{topic.name}~{topic.dead_letter}"
            same_topics = [
                query for query in queries if (query.topic.name, query.dead_letter) == (topic.name, topic.dead_letter)
            ]
            query = next((query for query in same_topics if query.topic.value == topic.value), None)
            if query is None:
                name += f"~{reader}" if same_topics else ""
                query = LetterQuery(step=step, topic=topic, dead_letter=topic.dead_letter, name=name)
                queries.append(query)
            query.add(topic, reader, whole=isinstance(port, TopicTable))
    return queries


def with_stored_names(queries: list[LetterQuery], checkpoint: Checkpoint) -> list[LetterQuery]:
    """The same queries, each with the name of the checkpoint that has its letters; notes the formats of all names.

    A format keeps its checkpoint, whichever step reads the topic first. A format without a checkpoint goes on with that of a
    format that no step reads any more: its schema was changed.
    """
    noted: dict[str, str] = checkpoint.read(LETTER_FORMATS).get("formats", {})
    # Checkpoints of an earlier version have no note: their names are those that the order of the steps gives.
    stored = set(checkpoint.queries())
    formats = {query.name: _format_of(query) for query in queries if query.name in stored} | noted
    rests: list[LetterQuery] = []
    free = dict(formats)
    for query in queries:
        name = next((name for name, form in free.items() if form == _format_of(query) and _is_input(name, query)), None)
        if name is None:
            rests.append(query)
        else:
            query.name = name
            del free[name]
    for query in rests:
        left = [name for name in free if _is_input(name, query)]
        kind = query.topic.value.kind
        query.name = (
            min(left, key=lambda name: not free[name].startswith(f"{kind} "))
            if left
            else _new_name(query, stored | set(formats))
        )
        free.pop(query.name, None)
        formats[query.name] = _format_of(query)
    if formats != noted:
        checkpoint.write(LETTER_FORMATS, formats=formats)
    return queries


def _is_input(name: str, query: LetterQuery) -> bool:
    return name.split("~")[:2] == [query.topic.name, query.dead_letter]


def _new_name(query: LetterQuery, taken: Collection[str]) -> str:
    base = f"{query.topic.name}~{query.dead_letter}"
    names = itertools.chain((base, f"{base}~{query.readers[0]}"), (f"{base}~{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _format_of(query: LetterQuery) -> str:
    """A digest: a registry's address may hold a password."""
    value = query.topic.value
    return f"{value.kind} {hashlib.sha256(repr(value).encode()).hexdigest()[:16]}"


def dead_letters(records: DataFrame, query: LetterQuery) -> DataFrame:
    """What goes to the dead-letter topic: the record as it came, with Kafka Connect's error headers."""
    bad = decoded(records, query.topic.value, f"{query.topic.name}-value").where("error is not null")
    facts = {
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "stage": F.lit("VALUE_CONVERTER"),
        "class.name": F.lit("ottla.pipelines.codecs"),
        "exception.class.name": F.lit("DataException"),
        "exception.message": F.col("error"),
    }
    added = F.array(
        *[
            F.struct(F.lit(f"__connect.errors.{name}").alias("key"), facts[name].cast("binary").alias("value"))
            for name in ERROR_HEADERS
        ]
    )
    return bad.select(
        "key",
        F.col("raw").alias("value"),
        F.when(F.col("headers").isNull(), added).otherwise(F.concat("headers", added)).alias("headers"),
    )


def take_over(folder: str, query: LetterQuery, position: Callable[[str], int]) -> None:
    """Renames a checkpoint of version 0.1, which had a query for each reader, so that no letter is written again.

    All of them wrote the same letters, and the one that is furthest has written every letter of the others. Version 0.1
    had checkpoints in local folders only.
    """
    if scheme_of(folder) != "file":
        return
    target = os.path.join(folder, query.name)
    earlier = [os.path.join(folder, f"{reader}.dead-letters") for reader in query.readers]
    present = [path for path in earlier if os.path.isdir(path)]
    if present and not os.path.exists(target):
        os.rename(max(present, key=position), target)
