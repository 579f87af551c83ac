"""Client quotas stand in the order of Kafka's map, and a change does not sort all of them again."""

from __future__ import annotations

from random import Random

import pytest

from ottla.metadata import quota_order
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, QuotaEntity
from ottla.metadata.records import ClientQuotaRecord
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot import image_records
from ottla.model.java_order import map_capacity, maps_by_bucket
from ottla.protocol.generated.client_quota_record import EntityData

LIMIT = "producer_byte_rate"


def record(name: str, *, remove: bool = False) -> ClientQuotaRecord:
    return ClientQuotaRecord([EntityData("user", name)], LIMIT, 1.0, remove)


class KafkasMap:
    """Kafka's quota map: each delta creates a new map, with the size of the old map as its capacity."""

    def __init__(self) -> None:
        self.entities: list[QuotaEntity] = []

    def apply(self, changes: dict[str, bool]) -> None:
        removed_entities = {(("user", name),) for name, remove in changes.items() if remove}
        former_entities = [entity for entity in self.entities if entity not in removed_entities]
        added = [(("user", name),) for name, remove in changes.items() if not remove]
        entities = [*former_entities, *(entity for entity in added if entity not in former_entities)]
        self.entities = maps_by_bucket(entities, map_capacity(len(entities), max(1, len(self.entities))))


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_a_new_map_with_each_delta(seed: int) -> None:
    random, image, kafka = Random(seed), MetadataImage(), KafkasMap()
    names: set[str] = set()
    for _ in range(120):
        growing = random.random() < (0.8 if len(names) < 40 else 0.3)
        few = random.sample(sorted(names), min(len(names), random.choice([1, 1, 2, 30])))
        new = (str(random.randrange(200)) for _ in range(random.choice([1, 1, 2, 30])))
        changes = dict.fromkeys(new, False) if growing else dict.fromkeys(few, True)
        replay_all(image, MetadataDelta(), [record(name, remove=remove) for name, remove in changes.items()])
        kafka.apply(changes)
        names = {entity[0][1] or "" for entity in kafka.entities}
        assert image.quota_entities() == kafka.entities
    loaded = [row.entity[0].entity_name for row in image_records(image) if isinstance(row, ClientQuotaRecord)]
    assert loaded == [entity[0][1] for entity in kafka.entities]


def test_a_change_does_not_sort_all_entities(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts replays every change since the last snapshot: a sort for each would take minutes."""
    sorts: list[int] = []

    def counted(items: list[QuotaEntity], capacity: int) -> list[QuotaEntity]:
        sorts.append(len(items))
        return maps_by_bucket(items, capacity)

    monkeypatch.setattr(quota_order, "maps_by_bucket", counted)
    image = MetadataImage()
    for number in range(1_000):
        replay_all(image, MetadataDelta(), [record(str(number))])
    for number in range(1_000):
        replay_all(image, MetadataDelta(), [record(str(number), remove=True)])
    assert not image.client_quotas
    assert sum(sorts) < 10 * 1_000
