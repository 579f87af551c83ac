"""The errors that librdkafka reports by itself, without a broker's answer. `confluent_kafka` has private names for them."""

from __future__ import annotations

from enum import IntEnum


class LocalError(IntEnum):
    """RD_KAFKA_RESP_ERR__*: `error.code()` of a message or an exception. The numbers are part of librdkafka's interface."""

    TRANSPORT = -195
    PARTITION_EOF = -191
    UNKNOWN_PARTITION = -190
    UNKNOWN_TOPIC = -188
    ALL_BROKERS_DOWN = -187
    TIMED_OUT = -185
