"""Access control lists: described, created, deleted; with the names that Kafka's tools print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.model.acls import Operation, PatternType, Permission, ResourceType


class Resource(NamedTuple):
    kind: ResourceType
    name: str | None
    pattern: PatternType

    def __str__(self) -> str:
        return f"ResourcePattern(resourceType={self.kind.name}, name={self.name}, patternType={self.pattern.name})"


class Entry(NamedTuple):
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


ANY_RESOURCE = Resource(ResourceType.ANY, None, PatternType.ANY)
ANY_ENTRY = Entry(None, None, Operation.ANY, Permission.ANY)


def describe_acls(cluster: Cluster, resource: Resource = ANY_RESOURCE) -> dict[Resource, list[Entry]]:
    from ottla.protocol.generated.describe_acls_request import DescribeAclsRequest
    from ottla.protocol.generated.describe_acls_response import DescribeAclsResponse

    request = DescribeAclsRequest(
        resource.kind, resource.name, resource.pattern, None, None, Operation.ANY, Permission.ANY
    )
    answer = cluster.any_call("describeAcls", request, DescribeAclsResponse)
    check(answer.error_code, answer.error_message)
    return {
        Resource(ResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)): [
            Entry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))
            for acl in row.acls
        ]
        for row in answer.resources
    }


def create_acls(cluster: Cluster, resource: Resource, entries: Iterable[Entry]) -> None:
    from ottla.protocol.generated.create_acls_request import AclCreation, CreateAclsRequest
    from ottla.protocol.generated.create_acls_response import CreateAclsResponse

    rows = [
        AclCreation(
            resource.kind,
            resource.name or "",
            resource.pattern,
            entry.principal or "",
            entry.host or "",
            entry.operation,
            entry.permission,
        )
        for entry in entries
    ]
    answer = cluster.controller_call("createAcls", CreateAclsRequest(rows), CreateAclsResponse)
    for result in answer.results:
        check(result.error_code, result.error_message)


def delete_acls(cluster: Cluster, resource: Resource, entries: Sequence[Entry]) -> int:
    """How many were deleted; no entries stand for all of the resource's."""
    from ottla.protocol.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
    from ottla.protocol.generated.delete_acls_response import DeleteAclsResponse

    kind, name, pattern = resource
    rows = [
        DeleteAclsFilter(kind, name, pattern, entry.principal, entry.host, entry.operation, entry.permission)
        for entry in entries or [ANY_ENTRY]
    ]
    answer = cluster.controller_call("deleteAcls", DeleteAclsRequest(rows), DeleteAclsResponse)
    deleted = 0
    for result in answer.filter_results:
        check(result.error_code, result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, acl.error_message)
            deleted += 1
    return deleted
