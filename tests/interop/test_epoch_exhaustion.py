"""All 32,766 epochs of a producer id used up, on both servers: the answers agree around the end and after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.api import encode_request
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.servers import two_servers
from tests.interop.differential.transactional import Producer, coordinator

pytestmark = [
    pytest.mark.interop,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("requires_apache_kafka"),
]

LAST = 32_766
AT_ONCE = 200


def burn(pair: Pair, producer: Producer, epoch: int) -> None:
    """Ask for epochs until the producer has this one; only the last answer matters."""
    name = producer.transactional_id
    request = InitProducerIdRequest(name, 60_000)
    frame = b"".join(bytes(piece) for piece in encode_request(request, 5, 7, "burn"))
    for side in pair.sides:
        while (missing := epoch - side.memory[f"{name}.epoch"]) > 0:
            count = min(missing, AT_ONCE)
            side.connection.send_raw(frame * count)
            for _ in range(count):
                answer = InitProducerIdResponse.decode(side.connection.read_frame() or b"", 5, 5)[0]
                assert answer.error_code == 0
                side.memory[f"{name}.id"] = answer.producer_id
                side.memory[f"{name}.epoch"] = answer.producer_epoch


def test_used_up_epochs(tmp_path: Path) -> None:
    with two_servers(tmp_path, {}) as (left, right):
        pair = Pair(Side(left), Side(right), "exhausted")
        coordinator(pair)
        topic = pair.create(pair.name("t"))
        producer = Producer(pair)
        producer.init()
        burn(pair, producer, LAST - 2)
        for value in (b"a", b"b", b"c", b"d"):  # the third end gives a new producer id
            producer.produce(topic, value, sequence=0)
            producer.end(5)
            producer.describe()
        burn(pair, producer, LAST)
        producer.init()  # a new id, by init
        producer.describe()
        burn(pair, producer, LAST)
        producer.init(bump=True)  # the same, and the last epoch is remembered
        producer.describe()
        burn(pair, producer, LAST)
        producer.init(bump=True, epoch=-3)  # no epoch is left to give to an older one
        producer.produce(topic, b"e", sequence=0)
        producer.init()  # fences with the epoch that was kept for it
        producer.settle()
        producer.describe()
        producer.init()
        producer.describe()
        pair.check()
