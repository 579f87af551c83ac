"""Requests that Kafka cannot decode into an object: it closes their connection before it checks any ACL.

An ACL, or a filter for ACLs, in which the resource type, the pattern, the operation or the permission is 0 (UNKNOWN) is
such a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.api_keys import ApiKey

UNKNOWN = 0


def unusable_request(api_key: int) -> Callable[[Any], bool] | None:
    """Whether a request of this API is one, for those APIs that can have one."""
    return _CHECKS.get(api_key)


def _is_unknown(asked: Any) -> bool:
    return UNKNOWN in (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)


def _is_unknown_acl(acl: Any) -> bool:
    return UNKNOWN in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)


_CHECKS: dict[int, Callable[[Any], bool]] = {
    ApiKey.CREATE_ACLS: lambda request: any(_is_unknown_acl(acl) for acl in request.creations),
    ApiKey.DESCRIBE_ACLS: _is_unknown,
    ApiKey.DELETE_ACLS: lambda request: any(_is_unknown(asked) for asked in request.filters),
}
