"""The simple assignor of share groups: all members busy, partitions shared evenly, as little moved as possible.

A partition may have several members. When all members want the same topics, these are spread together, otherwise topic
by topic. With as many partitions as members or more, each partition has one member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from ottla.coordinator.groups.share.members import Partitions
from ottla.model.ids import Uuid

Place = tuple[Uuid, int]


def assign(
    members: Mapping[str, frozenset[Uuid]], partitions: Mapping[Uuid, frozenset[int]], targets: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Member -> partitions.

    `members` has the subscribed topics of each member, `partitions` the readable partitions.
    """
    subscribed = sorted(frozenset().union(*members.values()))
    spread: dict[str, set[Place]] = {member_id: set() for member_id in members}
    alike = len(set(members.values())) <= 1
    for topics in [subscribed] if alike else [[topic] for topic in subscribed]:
        places = [(topic, index) for topic in topics for index in sorted(partitions.get(topic, ()))]
        readers = [member_id for member_id, names in members.items() if alike or topics[0] in names]
        _spread(places, readers, targets, spread)
    return {member_id: _by_topic(places) for member_id, places in spread.items()}


def _spread(
    places: list[Place], readers: list[str], targets: Mapping[str, Partitions], spread: dict[str, set[Place]]
) -> None:
    if not places or not readers:
        return
    sharing = ceil(len(readers) / len(places))
    share = sharing * len(places) / len(readers)
    desired = {reader: ceil(share * (i + 1)) - ceil(share * i) for i, reader in enumerate(readers)}
    readers_by_place: dict[Place, list[str]] = {place: [] for place in places}
    assigned: dict[str, list[Place]] = {reader: [] for reader in readers}
    for reader in readers:
        for place in _places(targets.get(reader, {})):
            if (
                place in readers_by_place
                and len(assigned[reader]) < desired[reader]
                and len(readers_by_place[place]) < sharing
            ):
                readers_by_place[place].append(reader)
                assigned[reader].append(place)
    unfilled = [reader for reader in readers if len(assigned[reader]) < desired[reader]]
    for place in places:
        for reader in list(unfilled):
            if len(readers_by_place[place]) >= sharing:
                break
            if reader not in readers_by_place[place]:
                readers_by_place[place].append(reader)
                assigned[reader].append(place)
                # A reader that got a place goes to the end of the queue, or leaves the queue when the reader has
                # enough.
                unfilled.remove(reader)
                if len(assigned[reader]) < desired[reader]:
                    unfilled.append(reader)
    for reader, reader_places in assigned.items():
        spread[reader].update(reader_places)


def _places(partitions: Partitions) -> Iterable[Place]:
    return ((topic, index) for topic, indexes in partitions.items() for index in sorted(indexes))


def _by_topic(places: Iterable[Place]) -> Partitions:
    partitions: dict[Uuid, set[int]] = {}
    for topic, index in sorted(places):
        partitions.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in partitions.items()}
