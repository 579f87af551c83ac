"""`ottla.validate.records`: the same answers as Apache Kafka to batches whose records cannot be read.

Two differences, both on purpose. Apache Kafka takes compressed records whose own length is wrong: no consumer can read
them. And it has no limit for what a batch decompresses to; Ottla refuses more than 100 MiB (INVALID_RECORD).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.malformed_batches import CODECS, bomb, unpackable, walked
from tests.interop.ottla_server import OttlaServer
from tests.interop.producer_session import produce
from tests.interop.settled import await_led
from tests.support.apache_kafka import ApacheKafka

INVALID_RECORD = 87
READ_BY_NO_CONSUMER = (
    "a record longer than the batch", "a record of negative length", "a record shorter than its fields",
)  # fmt: skip
SETTING = {"ottla.validate.records": "true"}


def make_topic(bootstrap_servers: str, name: str, config: dict[str, str]) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(20)
    await_led(bootstrap_servers, name)
    return name


def codes(port: int, topic: str, batches: dict[str, bytes]) -> dict[str, int]:
    return {name: produce(port, topic, batch).error_code for name, batch in batches.items()}


@pytest.mark.interop
@pytest.mark.timeout(180)
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_records_are_refused_as_by_apache_kafka(
    policy: str, ottla_server: OttlaServer, apache_server: ApacheKafka, new_name: Callable[[str], str]
) -> None:
    batches = {**walked(), **unpackable()}
    config = {"cleanup.policy": policy}
    theirs = make_topic(apache_server.bootstrap_servers, new_name("walked"), config)
    ours = make_topic(ottla_server.bootstrap_servers, new_name("walked"), {**config, **SETTING})
    expected = codes(apache_server.port, theirs, batches)
    allowed = {name for name in batches if name.rpartition(", ")[0] in READ_BY_NO_CONSUMER and expected[name] == 0}
    expected |= dict.fromkeys(allowed, INVALID_RECORD)
    assert codes(ottla_server.port, ours, batches) == expected
    assert sum(code != 0 for code in expected.values()) > 100


@pytest.mark.timeout(180)
def test_only_the_topic_that_asks_for_it_is_walked(ottla_server: OttlaServer, new_name: Callable[[str], str]) -> None:
    batch = walked()["an overlong time, zstd"]
    plain = make_topic(ottla_server.bootstrap_servers, new_name("opaque"), {})
    asked = make_topic(ottla_server.bootstrap_servers, new_name("walked"), SETTING)
    assert produce(ottla_server.port, plain, batch).error_code == 0
    assert produce(ottla_server.port, asked, batch).error_code == INVALID_RECORD


@pytest.mark.timeout(180)
@pytest.mark.parametrize("config", [SETTING, {"cleanup.policy": "compact"}], ids=["validated", "compacted"])
def test_a_batch_decompresses_to_100_mib_at_most(
    config: dict[str, str], ottla_server: OttlaServer, new_name: Callable[[str], str]
) -> None:
    topic = make_topic(ottla_server.bootstrap_servers, new_name("bombs"), config)
    assert produce(ottla_server.port, topic, bomb(60, CODECS["zstd"])).error_code == 0
    for codec in ("zstd", "gzip"):
        for records in (1, 500):
            batch = bomb(110, CODECS[codec], records=records)
            assert produce(ottla_server.port, topic, batch).error_code == INVALID_RECORD, (codec, records)
