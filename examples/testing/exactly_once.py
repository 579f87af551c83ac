"""aiokafka: words become counts. The counts and the offsets of the words are written in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def count_words(
    servers: str, words: str, counts: str, until: Callable[[], bool], before_commit: Callable[[], None] = lambda: None
) -> None:
    """Work until `until` returns true. `before_commit` is where a test lets the worker crash."""
    group = f"counts-{words}"
    consumer = AIOKafkaConsumer(
        words,
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=group)
    await consumer.start()
    await producer.start()
    try:
        while not until():
            batches = await consumer.getmany(timeout_ms=100)
            for partition, records in batches.items():
                async with producer.transaction():
                    for record in records:
                        text = record.value.decode()
                        value = json.dumps({"text": text, "words": len(text.split())}).encode()
                        await producer.send(counts, value)
                    offsets = {TopicPartition(*partition): records[-1].offset + 1}
                    await producer.send_offsets_to_transaction(offsets, group)
                    before_commit()
    finally:
        await consumer.stop()
        await producer.stop()
