"""DescribeAcls: the ACLs that a filter matches, grouped by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.generated.describe_acls_request import DescribeAclsRequest
from ottla.protocol.generated.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from ottla.security.acls import Acl, AclFilter

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def handle(context: RequestContext[NodePlane], request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not context.broker.config.authorizer_class_name:
        return DescribeAclsResponse(
            error_code=int(ErrorCode.SECURITY_DISABLED), error_message="No Authorizer is configured on the broker"
        )
    acl_filter = AclFilter(
        request.resource_type_filter, request.resource_name_filter, request.pattern_type_filter,
        request.principal_filter, request.host_filter, request.operation, request.permission_type,
    )  # fmt: skip
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for record in paced(list(context.broker.image.acls.values()), 3):
        acl = Acl.of(record)
        if acl_filter.matches(acl):
            resource = resources.setdefault(acl[:3], DescribeAclsResource(acl.resource_type, acl.name, acl.pattern, []))
            resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
    return DescribeAclsResponse(error_message="", resources=list(resources.values()))
