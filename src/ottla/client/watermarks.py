"""Where a partition begins and ends, by a reader of librdkafka's.

Kafka's brokers hear of a topic a moment after it is made and lead its partitions a moment after they list it; librdkafka
tells its caller the refusal of that moment: it is asked again here, for as long as the caller has time.
"""

from __future__ import annotations

import time
from typing import Any

_AGAIN_S = 0.1


def leader_moves(error: Any) -> bool:
    """Whether it is said where a leader is just made, moves or has died: the cluster tells another one soon, or none."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # these are the library's own names for its errors
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
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
