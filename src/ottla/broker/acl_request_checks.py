"""Requests that Kafka cannot decode into an object: it closes their connection before it checks any ACL.

An ACL, or a filter for ACLs, in which the resource type, the pattern, the operation or the permission is 0 (UNKNOWN) is
such a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.protocol.generated.create_acls_request import AclCreation
    from ottla.protocol.generated.delete_acls_request import DeleteAclsFilter
    from ottla.protocol.generated.describe_acls_request import DescribeAclsRequest

UNKNOWN = 0


def acl_request_check(api_key: int) -> Callable[[Any], bool] | None:
    """Whether a request of this API is one, for those APIs that can have one."""
    return _CHECKS.get(api_key)


def _is_unknown(acl_filter: DescribeAclsRequest | DeleteAclsFilter) -> bool:
    kinds = acl_filter.resource_type_filter, acl_filter.pattern_type_filter
    return UNKNOWN in (*kinds, acl_filter.operation, acl_filter.permission_type)


def _is_unknown_acl(acl: AclCreation) -> bool:
    return UNKNOWN in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)


_CHECKS: dict[int, Callable[[Any], bool]] = {
    ApiKey.CREATE_ACLS: lambda request: any(_is_unknown_acl(acl) for acl in request.creations),
    ApiKey.DESCRIBE_ACLS: _is_unknown,
    ApiKey.DELETE_ACLS: lambda request: any(_is_unknown(acl_filter) for acl_filter in request.filters),
}
