"""XXH3 as hash4j (the library of Apache Kafka 4.3.1) computes it: golden values recorded from it."""

from __future__ import annotations

from struct import pack

import pytest

from ottla.coordinator.groups.topic_hashes import TopicHashes
from ottla.coordinator.xxh3 import xxh3_64
from ottla.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from ottla.model.ids import ZERO_UUID, Uuid

HASH4J = {
    0: 3244421341483603138,
    1: 1433843135270481901,
    2: 2058273368586827884,
    3: 12180141160879835164,
    4: 7895465118229274323,
    7: 10268930274873212462,
    8: 6941064856527638883,
    9: 18374517719163151272,
    15: 11439541028034589121,
    16: 13314990914799711621,
    17: 8163341949877205007,
    31: 17096134949297616051,
    33: 4486878507168070088,
    64: 2917965298538373825,
    100: 13083933661539568799,
    128: 7440608504995537343,
    129: 14295761343243267012,
    200: 8389308914288017243,
    240: 7229805477010515663,
    241: 10082113959289486871,
    300: 18274095394255143463,
    512: 17690705279202729245,
    1000: 7804479483783519874,
    1024: 11205349619999208113,
    1025: 9253807012321506678,
    2100: 2062986632230708877,
    5000: 8762507191635236893,
}
"""The hash of so many bytes, each seven more than the one before, beginning with three."""


@pytest.mark.parametrize("length", HASH4J)
def test_golden(length: int) -> None:
    assert xxh3_64(bytes((7 * i + 3) & 255 for i in range(length))) == HASH4J[length]


def test_golden_of_mixed_fields() -> None:
    name = "topic-ä"
    fields = pack("<bqq", 0, 1, -2) + name.encode("utf-16-le") + pack("<i", len(name)) + pack("<4i", 3, 0, 1, 2)
    assert xxh3_64(fields) == 4512921524487946955


def image(*topics: TopicImage, rack: str | None = None) -> MetadataImage:
    broker = BrokerRegistration(id=1, epoch=1, incarnation_id=ZERO_UUID, listeners={}, features={}, rack=rack)
    return MetadataImage(
        brokers={1: broker},
        topics_by_id={topic.id: topic for topic in topics},
        topics_by_name={topic.name: topic for topic in topics},
    )


def topic(name: str, partitions: int, number: int = 1) -> TopicImage:
    registration = PartitionRegistration((1,), (1,), 1, 0, 0)
    return TopicImage(name, Uuid(bytes(15) + bytes([number])), dict.fromkeys(range(partitions), registration))


def test_what_changes_the_hash_of_a_group() -> None:
    def group_hash(names: list[str], image: MetadataImage) -> int:
        return TopicHashes().group_hash(names, image)

    topic_a, topic_b = topic("a", 2), topic("b", 3, 2)
    base = group_hash(["a", "b"], image(topic_a, topic_b))
    assert base == group_hash(["b", "a", "nowhere"], image(topic_b, topic_a))
    assert group_hash([], image(topic_a)) == group_hash(["nowhere"], image(topic_a)) == 0
    others = [
        group_hash(["a"], image(topic_a, topic_b)),
        group_hash(["a", "b"], image(topic("a", 3), topic_b)),
        group_hash(["a", "b"], image(topic("a", 2, 9), topic_b)),
        group_hash(["a", "b"], image(topic_a, topic_b, rack="r1")),
    ]
    assert len({base, *others}) == 5
    assert all(-(2**63) <= value < 2**63 for value in others)
