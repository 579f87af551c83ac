"""DeleteGroups: groups without members, and their offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.model.errors import KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
from ottla.protocol.generated.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Deferred[DeleteGroupsResponse]:
    names = list(dict.fromkeys(paced(request.groups_names)))

    def finish(answers: list[DeletableGroupResult | KafkaError]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[_result(*pair) for pair in zip(paced(names), answers, strict=True)])

    return ask_all([partial(context.broker.groups.delete_group, name) for name in names], finish)


def _result(group_id: str, answer: DeletableGroupResult | KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id, answer.code) if isinstance(answer, KafkaError) else answer
