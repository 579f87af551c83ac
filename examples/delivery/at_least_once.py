"""At least once: do an order, then say so. A crash in between does it again."""

from confluent_kafka import Producer
from stage import Stage, show


def work(stage: Stage) -> None:
    consumer, producer = stage.consumer(), Producer({"bootstrap.servers": stage.servers})
    consumer.subscribe([stage.orders])
    for messages in stage.batches(consumer):
        for message in messages:
            producer.produce(stage.results, message.value())
        producer.flush(20)
        stage.crash()  # done, not committed: the next run does these again
        consumer.commit(asynchronous=False)


if __name__ == "__main__":
    show(__file__, work, Stage.read_results)
