"""Requests and responses of nodes with plausible and absurd fields: a node that lies, or a node of a strange version.

Every value comes from the message's class: integers by the name of the field (epochs near the current epoch, ids of
real and of absent nodes), a single metadata partition, the right cluster id most of the time. So most messages pass the
first checks, which random bytes never do.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Any

from ottla.broker.apis import API_TABLE, CONTROLLER_APIS
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Uuid
from ottla.protocol.primitives import Message, Struct
from tests.protocol.message_values import Kind, integer_ranges, is_struct, kinds, random_message

NODE_APIS = tuple(
    sorted(
        key
        for key in CONTROLLER_APIS
        if API_TABLE[key].controller in ("quorum", "envelope", "broker_heartbeat") or API_TABLE[key].broker is None
    )
)
"""The requests that brokers and controllers send to a controller."""
_IDS = ("voter_id", "leader_id", "replica_id", "candidate_id", "node_id", "broker_id", "controller_id")
_SINGLE = ("topics", "partitions", "responses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a liar has learned about the cluster."""

    cluster_id: str
    epoch: int
    end_offset: int
    node_ids: tuple[int, ...]
    directory_id: Uuid = ZERO_UUID
    broker_epoch: int = 0
    topic_id: Uuid = METADATA_TOPIC_ID
    topic: str = METADATA_TOPIC
    largest_epoch: int = 2**31 - 1


def plausible(random: Random, cls: type[Message], version: int, facts: Facts) -> Message:
    message = random_message(random, cls, version, nulls=False)
    _fill(random, cls, message, facts, inside="")
    return message


def _fill(random: Random, root: type[Message], part: Struct, facts: Facts, inside: str) -> None:
    for name, kind in kinds(type(part)).items():
        if is_struct(kind.base):
            _fill_parts(random, root, part, name, kind, facts)
        elif not kind.is_list:
            value = _value(random, root, part, name, kind, facts, inside)
            if value is not None:
                setattr(part, name, value)


def _fill_parts(random: Random, root: type[Message], part: Struct, name: str, kind: Kind, facts: Facts) -> None:
    if not kind.is_list:
        if getattr(part, name) is not None:
            own = copy(getattr(part, name))  # the default of a class is one object for all its messages
            _fill(random, root, own, facts, inside=name)
            setattr(part, name, own)
        return
    parts = getattr(part, name) or []
    if name in _SINGLE and random.random() < 0.95:
        parts = parts[:1] or [kind.base()]
    for element in parts:
        _fill(random, root, element, facts, inside=name)
    setattr(part, name, parts)


def _value(
    random: Random, root: type[Message], part: Struct, name: str, kind: Kind, facts: Facts, inside: str
) -> Any | None:
    """None keeps the random value."""
    if kind.base is str:
        if name == "cluster_id":
            return random.choice([facts.cluster_id] * 4 + ["strange"])
        return facts.topic if inside in _SINGLE and name in ("topic", "topic_name", "name") else None
    if kind.base is Uuid:
        return facts.topic_id if name == "topic_id" else random.choice([ZERO_UUID, facts.directory_id])
    if kind.base is not int:
        return None
    low, high = integer_ranges(root)[f"{type(part).__name__}.{name}"]
    choices = _integers(name, facts, inside)
    return min(max(random.choice(choices), low), high) if choices else None


def _integers(name: str, facts: Facts, inside: str) -> list[int]:
    if name in _IDS:
        return [*facts.node_ids, *facts.node_ids, -1, -5, 7, 2**31 - 1]
    if name == "broker_epoch":
        return [facts.broker_epoch, facts.broker_epoch, facts.broker_epoch + 1, -1, 2**63 - 1]
    if name == "error_code":
        return [0] * 8 + [6, 74, 75, 9999, -1]
    if "epoch" in name:
        near = [facts.epoch - 1, facts.epoch, facts.epoch, facts.epoch + 1, facts.epoch + 1, -1, 0]
        return [*near * 4, facts.largest_epoch]
    if "offset" in name:
        return [0, 1, facts.end_offset, facts.end_offset, facts.end_offset + 1, -1, 2**62]
    if name in ("partition", "partition_index", "index") and inside == "partitions":
        return [0] * 20 + [-1, 2**31 - 1]
    if name in ("max_wait_ms", "timeout_ms"):
        return [0, 1, 50, -1]
    return []
