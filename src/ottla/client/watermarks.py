"""Where a partition begins and ends, by a reader of librdkafka's.

Kafka's brokers learn of a topic a moment after its creation, and lead its partitions a moment after they list it.
librdkafka returns the brokers' refusals of that moment to its caller. This module retries until the caller's time-out.
"""

from __future__ import annotations

import time
from typing import Any

from ottla.client.librdkafka_errors import LocalError

_AGAIN_S = 0.1


def leader_moves(error: Any) -> bool:
    """Whether the error may pass: a leader is being elected, moves or has died, and a new one may follow soon."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        LocalError.UNKNOWN_TOPIC,
        LocalError.UNKNOWN_PARTITION,
        LocalError.TRANSPORT,
        LocalError.TIMED_OUT,
    )


def watermarks(reader: Any, topic: str, partition: int, timeout_s: float) -> tuple[int, int]:
    """Low and high; KafkaException when there is no answer in time, or a refusal for good."""
    from confluent_kafka import KafkaException, TopicPartition

    deadline = time.monotonic() + timeout_s
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=left)
        except KafkaException as error:
            if not leader_moves(error.args[0]) or time.monotonic() + _AGAIN_S >= deadline:
                raise
            time.sleep(_AGAIN_S)
        else:
            return low, high
