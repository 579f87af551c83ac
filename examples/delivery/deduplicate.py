"""Exactly once into a database: deliver at least once, and let a unique id per order refuse the second time."""

import sqlite3

from stage import Stage, show


def work(stage: Stage) -> None:
    consumer = stage.consumer()
    consumer.subscribe([stage.orders])
    with sqlite3.connect(stage.database) as database:
        database.execute("CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY)")
        for messages in stage.batches(consumer):
            for message in messages:
                database.execute("INSERT OR IGNORE INTO results VALUES (?)", [message.value().decode()])
            database.commit()
            stage.crash()  # these come again, and are known
            consumer.commit(asynchronous=False)


def results(stage: Stage) -> list[str]:
    with sqlite3.connect(stage.database) as database:
        return [row[0] for row in database.execute("SELECT id FROM results")]


if __name__ == "__main__":
    show(__file__, work, results)
