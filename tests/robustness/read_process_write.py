"""A worker that reads, processes and writes in transactions until it is killed: `python -m ... SERVERS NAME SEED [HISTORY]`.

Each input becomes two outputs, in two partitions; a transaction also carries the offsets of its inputs. Every output
names its transaction and how many outputs that has, so that a torn one can be told; now and then a transaction is
aborted on purpose, and its outputs say so. Any error ends the worker: whoever runs it starts it again, and the offsets
say where to go on. HISTORY is the file in which each transaction is recorded (`histories`).
"""

from __future__ import annotations

import json
import os
import random
import sys
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer

from tests.robustness.histories import ABORTED, TRANSACT, History

INPUT, OUTPUT, GROUP = "input", "output", "copiers"
PARTITIONS = 4
BATCH = 20
ABORTS = 0.15
TIMEOUT_S = 10


def main(servers: str, name: str, seed: int, file: str = os.devnull) -> None:
    chance, history = random.Random(seed), History(Path(file), name)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": name,
            "linger.ms": 0,
            "transaction.timeout.ms": 10_000,
            # When all brokers were away, librdkafka 2.16 forgets them and an offset commit that waits for one.
            "metadata.recovery.strategy": "none",
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "group.instance.id": name,  # its place is kept while it is away, so that a restart costs no rebalance
            "session.timeout.ms": 6_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([INPUT])
    while True:
        messages = [message for message in consumer.consume(BATCH, 0.2) if not message.error()]
        if messages:
            process(producer, consumer, messages, history, abort=chance.random() < ABORTS)


def process(producer: Producer, consumer: Consumer, messages: list[Message], history: History, *, abort: bool) -> None:
    attempt = uuid.uuid4().hex
    inputs = [(int(message.value() or b""), message.partition(), message.offset()) for message in messages]
    history.invoke(TRANSACT, name=attempt, topic=OUTPUT, value=attempt, size=2 * len(messages), inputs=inputs)
    producer.begin_transaction()
    for message in messages:
        number = int(message.value() or b"")
        for half in range(2):
            value = {"n": number, "half": half, "attempt": attempt, "size": 2 * len(messages), "aborted": abort}
            producer.produce(OUTPUT, json.dumps(value), partition=(number + half) % PARTITIONS)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
    )
    if abort:
        producer.flush(TIMEOUT_S)  # so that the records are in the log before their abort
        producer.abort_transaction(TIMEOUT_S)
        history.complete(attempt, ABORTED)
        for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
            if place.offset < 0:
                place.offset = 0
            consumer.seek(place)
    else:
        history.ask(attempt)
        producer.commit_transaction(TIMEOUT_S)
        history.complete(attempt)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    except KafkaException as error:
        print(f"{sys.argv[2]}: {error}", flush=True)
        os._exit(1)  # a producer in the midst of a transaction would wait for its broker before it goes
