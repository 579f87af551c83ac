"""Exactly once into a database: the offset stands beside the results, and both change in one transaction of its own.

The broker is never told how far we are; the database says where to go on.
"""

import sqlite3

from confluent_kafka import TopicPartition
from stage import Stage, show


def work(stage: Stage) -> None:
    with sqlite3.connect(stage.database) as database:
        database.execute("CREATE TABLE IF NOT EXISTS results (value TEXT)")
        database.execute("CREATE TABLE IF NOT EXISTS position (topic TEXT PRIMARY KEY, offset INTEGER)")
        database.commit()
        row = database.execute("SELECT offset FROM position WHERE topic = ?", [stage.orders]).fetchone()
        consumer = stage.consumer()
        consumer.assign([TopicPartition(stage.orders, 0, row[0] if row else 0)])
        for messages in stage.batches(consumer):
            for message in messages:
                database.execute("INSERT INTO results VALUES (?)", [message.value().decode()])
            position = messages[-1].offset() + 1
            database.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", [stage.orders, position])
            stage.crash()  # neither the results nor the offset are there
            database.commit()


def results(stage: Stage) -> list[str]:
    with sqlite3.connect(stage.database) as database:
        return [row[0] for row in database.execute("SELECT value FROM results")]


if __name__ == "__main__":
    show(__file__, work, results)
