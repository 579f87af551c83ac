"""Quotas and ACLs: the order of what is listed, and requests that name no filter."""

from __future__ import annotations

from random import Random

from ottla.protocol.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.generated.create_acls_request import AclCreation, CreateAclsRequest
from ottla.protocol.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.generated.describe_acls_request import DescribeAclsRequest
from ottla.protocol.generated.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from tests.interop.differential.pair import Pair
from tests.interop.differential.scenario import scenario

_RATES = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
Entity = tuple[tuple[str, str | None], ...]


@scenario(DescribeClientQuotasRequest, servers="access")
def quotas_in_kafkas_order(pair: Pair, version: int) -> None:
    """A sequence of changes, one delta each: what is set and what is removed decides how large Kafka's map is."""
    random = Random(f"quotas v{version}")
    there: dict[Entity, set[str]] = {}
    for _ in range(40):
        if there and random.random() < 0.3:
            entity = random.choice(sorted(there, key=str))
            keys = sorted(there[entity]) if random.random() < 0.6 else [random.choice(sorted(there[entity]))]
            operations = [OpData(key, 0.0, remove=True) for key in keys]
        else:
            kinds = random.choice([("user",), ("client-id",), ("user", "client-id")])
            entity = tuple((kind, random.choice([None, *(pair.name(str(n)) for n in range(20))])) for kind in kinds)
            keys = random.sample(_RATES, random.randrange(1, 4))
            operations = [OpData(key, float(random.randrange(1, 1000)), remove=False) for key in keys]
        changed = there.setdefault(entity, set())
        for operation in operations:
            (changed.discard if operation.remove else changed.add)(operation.key)
        if not changed:
            del there[entity]
        parts = [EntityData(kind, name) for kind, name in entity]
        pair.send(AlterClientQuotasRequest([EntryData(parts, operations)], validate_only=False), 1)
        pair.wait(DescribeClientQuotasRequest([], strict=False), 1, lambda answer: _there(answer) == there)
        pair.send(DescribeClientQuotasRequest([], strict=False), version)
    pair.send(DescribeClientQuotasRequest([ComponentData("user", 2, None)], strict=True), version)
    pair.send(DescribeClientQuotasRequest([ComponentData("client-id", 2, None)], strict=False), version)
    for entity, keys in there.items():  # the next version begins with none
        parts = [EntityData(kind, name) for kind, name in entity]
        removed = [OpData(key, 0.0, remove=True) for key in sorted(keys)]
        pair.send(AlterClientQuotasRequest([EntryData(parts, removed)], validate_only=False), 1)
    pair.wait(DescribeClientQuotasRequest([], strict=False), 1, lambda answer: not _there(answer))


def _there(answer: object) -> dict[Entity, set[str]]:
    found: dict[Entity, set[str]] = {}
    for entry in getattr(answer, "entries", None) or ():
        names = {part.entity_type: part.entity_name for part in entry.entity}
        entity = tuple((kind, names[kind]) for kind in ("user", "client-id") if kind in names)
        found[entity] = {value.key for value in entry.values}
    return found


_CODES = (0, 1, 2, 3, 99)


@scenario(DescribeAclsRequest, servers="access")
def acls_described_by_odd_filters(pair: Pair, version: int) -> None:
    """A filter whose type, pattern, operation or permission is 0 (unknown) is no filter."""
    pair.send(CreateAclsRequest([AclCreation(2, pair.name("t"), 3, "User:a", "*", 3, 3)]), 3)
    for code in _CODES:
        for field in range(4):
            kinds = [1, 1, 1, 1]
            kinds[field] = code
            kind, pattern, operation, permission = kinds
            pair.send(DescribeAclsRequest(kind, pair.name("t"), pattern, None, None, operation, permission), version)
    pair.send(DescribeAclsRequest(), version)
    pair.send(DescribeAclsRequest(0, None, 0, None, None, 0, 0), version)
    pair.send(DescribeAclsRequest(1, "", 1, "", "", 1, 1), version)


@scenario(DescribeAclsRequest)
def acls_described_without_an_authorizer(pair: Pair, version: int) -> None:
    pair.send(DescribeAclsRequest(1, None, 1, None, None, 1, 1), version)
    pair.send(DescribeAclsRequest(0, None, 0, None, None, 0, 0), version)


@scenario(DeleteAclsRequest, servers="access")
def acls_deleted_by_odd_filters(pair: Pair, version: int) -> None:
    for code in _CODES:
        for field in range(4):
            kinds = [1, 1, 1, 1]
            kinds[field] = code
            kind, pattern, operation, permission = kinds
            asked = DeleteAclsFilter(kind, pair.name("never"), pattern, None, None, operation, permission)
            pair.send(DeleteAclsRequest([asked]), version)
    pair.send(DeleteAclsRequest([DeleteAclsFilter()]), version)


@scenario(CreateAclsRequest, servers="access")
def acls_created_with_odd_values(pair: Pair, version: int) -> None:
    """A value of 0 (unknown) anywhere closes the connection; a value that means any, or nothing, is refused."""
    for code in _CODES:
        for field in range(4):
            kinds = [2, 3, 3, 3]
            kinds[field] = code
            kind, pattern, operation, permission = kinds
            asked = AclCreation(kind, pair.name("odd"), pattern, "User:odd", "*", operation, permission)
            pair.send(CreateAclsRequest([asked]), version)
    pair.send(CreateAclsRequest([]), version)
    for side in pair.sides:  # in no order: the ids are random, and Kafka lists by them
        side.ask(DeleteAclsRequest([DeleteAclsFilter(1, pair.name("odd"), 1, "User:odd", None, 1, 1)]), 3)
