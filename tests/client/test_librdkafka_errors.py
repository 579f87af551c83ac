"""The numbers of librdkafka's own errors are those that confluent_kafka uses."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from ottla.client.librdkafka_errors import LocalError


@pytest.mark.parametrize("error", LocalError)
def test_the_number_is_librdkafkas(error):
    assert getattr(KafkaError, f"_{error.name}") == error
