"""ListGroups: the groups that this node coordinates, by state and type."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.generated.list_groups_response import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: ListGroupsRequest
) -> ListGroupsResponse | Deferred[ListGroupsResponse]:
    return ask(
        partial(context.broker.groups.list_groups, request.states_filter, request.types_filter),
        _response,
        lambda error: ListGroupsResponse(error_code=error.code),
    )


def _response(groups: list[ListedGroup]) -> ListGroupsResponse:
    return ListGroupsResponse(groups=groups)
