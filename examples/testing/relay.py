"""confluent-kafka's asyncio clients: a relay that copies the records of a topic in capitals."""

from __future__ import annotations

from confluent_kafka.aio import AIOConsumer, AIOProducer


async def relay(servers: str, source: str, target: str, count: int) -> None:
    """Copy `count` records, and commit."""
    consumer = AIOConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"relay-{source}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = AIOProducer({"bootstrap.servers": servers, "enable.idempotence": True})
    try:
        await consumer.subscribe([source])
        copied = 0
        while copied < count:
            message = await consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            delivered = await producer.produce(target, message.value().upper(), key=message.key())
            await producer.flush()
            await delivered
            copied += 1
        await consumer.commit(asynchronous=False)
    finally:
        await consumer.close()
        await producer.close()
