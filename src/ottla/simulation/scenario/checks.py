"""Checks of a scenario that compare one section with the others. Each check raises one ScenarioError."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ottla.simulation.scenario.keys import COMMON, KINDS, FaultKind
from ottla.simulation.scenario.places import SectionPlace, nearest, shown
from ottla.simulation.scenario.plan import MAX_PARTITIONS, ClusterPlan, FaultPlan, TopicPlan
from ottla.simulation.scenario.targets import parse_partition, parse_target

_OF_BROKERS = frozenset({"leader", "follower", "followers", "brokers"})


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values; `min.insync.replicas = 2` without quotes is a table in a table for TOML."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def setting(place: SectionPlace, name: str, value: object, keys: Collection[str], table: Collection[str]) -> str:
    """A setting of Kafka as text."""
    if name not in table:
        near = nearest(name, [*keys, *table])
        raise place.error(
            f"unknown key {shown(name)}; {near or 'keys are ' + ', '.join(keys) + ', and settings'}", name
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float | str):
        raise place.error(f"{shown(value)} is not a number, text or boolean; a list is a text with commas", name)
    return str(value)


def check_assignment(place: SectionPlace, rows: Sequence[Sequence[int]], partitions: int, cluster: ClusterPlan) -> None:
    if len(rows) != partitions or partitions > MAX_PARTITIONS:
        raise place.error(f"{len(rows)} lists of brokers for {partitions} partitions; write one list each", "replicas")
    for row in rows:
        if len(row) != len(rows[0]) or not row:
            raise place.error(
                "every partition needs the same number of replicas; make the lists equally long", "replicas"
            )
        if len(set(row)) != len(row):
            raise place.error(f"{list(row)} names a broker twice; name each broker once", "replicas")
        missing = [broker for broker in row if not 1 <= broker <= cluster.brokers]
        if missing:
            raise place.error(
                f"broker {missing[0]} does not exist; brokers have the ids 1 to {cluster.brokers}", "replicas"
            )


def check_names(places: Sequence[SectionPlace], names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise places[number].error(f"the name {shown(name)} is used twice; choose a different name", "name")


def check_fault(place: SectionPlace, content: Mapping[str, Any], fault: FaultPlan) -> None:
    """The kind exists, has all keys that it needs, and no key that it would ignore."""
    kind = KINDS.get(fault.kind)
    if kind is None:
        raise place.unknown_value("kind", fault.kind, KINDS)
    allowed = {*COMMON, *kind.needs, *kind.allows}
    for key in content:
        if key not in allowed:
            raise place.error(f"{key} has no effect on {fault.kind}; remove the line", key)
    needs = [*(("target",) if kind.target != "optional" else ()), *kind.needs]
    missing = [key for key in needs if key not in content]
    if missing:
        raise place.error(f"{fault.kind} needs {missing[0]}; {_advice(missing[0])}", "kind")


def _advice(key: str) -> str:
    return {
        "target": 'add target = "broker 1"',
        "peer": 'add peer = "broker 2"',
        "delay": 'add delay = "200ms"',
        "by": 'add by = "+5s"',
    }[key]


def check_target(
    place: SectionPlace,
    key: str,
    text: str,
    fault: FaultPlan,
    cluster: ClusterPlan,
    topics: Mapping[str, TopicPlan],
    names: Mapping[str, float],
) -> None:
    """`names`: earlier faults with a name, and when they happen."""
    kind: FaultKind = KINDS[fault.kind]
    try:
        if key == "target" and kind.target == "partition":
            parse_partition(text, topics)
            return
        target = parse_target(text, cluster, topics)
    except ValueError as error:
        raise place.error(str(error), key) from error
    if target.role == "same" and (target.name not in names or names[target.name] > fault.at_ms):
        advice = nearest(target.name, names) or "give the earlier fault a name"
        raise place.error(f"no earlier fault has the name {shown(target.name)}; {advice}", key)
    on_broker = target.role in _OF_BROKERS or (target.role == "node" and target.node <= cluster.brokers)
    if kind.target == "brokers" and not on_broker and target.role != "same":
        raise place.error(
            f"{fault.kind} is possible on brokers only: a controller without its log has lost its vote; "
            'write target = "broker 1"', key,
        )  # fmt: skip
