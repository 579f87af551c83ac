"""At most once: say that an order is done, then do it. A crash in between loses it."""

from confluent_kafka import Producer
from stage import Stage, show


def work(stage: Stage) -> None:
    consumer, producer = stage.consumer(), Producer({"bootstrap.servers": stage.servers})
    consumer.subscribe([stage.orders])
    for messages in stage.batches(consumer):
        consumer.commit(asynchronous=False)
        stage.crash()  # committed, not done: nobody will do these
        for message in messages:
            producer.produce(stage.results, message.value())
        producer.flush(20)


if __name__ == "__main__":
    show(__file__, work, Stage.read_results)
