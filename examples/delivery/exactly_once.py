"""Exactly once from topic to topic: results and offsets are one transaction, there as a whole or not at all.

The next run fences the first (same transactional id), its open transaction is aborted, and readers with read_committed
never see it.
"""

from confluent_kafka import Producer
from stage import Stage, show


def work(stage: Stage) -> None:
    consumer = stage.consumer(**{"isolation.level": "read_committed"})
    producer = Producer({"bootstrap.servers": stage.servers, "transactional.id": stage.orders})
    producer.init_transactions(30)
    consumer.subscribe([stage.orders])
    for messages in stage.batches(consumer):
        producer.begin_transaction()
        for message in messages:
            producer.produce(stage.results, message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
        producer.flush(20)
        stage.crash()  # everything is written, nothing is committed: it never happened
        producer.commit_transaction(30)


if __name__ == "__main__":
    show(__file__, work, Stage.read_results)
