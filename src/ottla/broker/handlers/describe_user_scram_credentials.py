"""DescribeUserScramCredentials: which mechanisms a user has, and with how many iterations; never the credential."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.generated.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from ottla.protocol.generated.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def handle(
    context: RequestContext[NodePlane], request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    image = context.broker.image
    users = Counter(user.name for user in paced(request.users or ())) or Counter({name for _, name in image.scram})
    credentials: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), record in paced(sorted(image.scram.items())):
        credentials.setdefault(user, []).append(CredentialInfo(mechanism, record.iterations))
    return DescribeUserScramCredentialsResponse(
        error_message="", results=[_described(credentials, name, count) for name, count in paced(users.items())]
    )


def _described(
    credentials: dict[str, list[CredentialInfo]], name: str, count: int
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, int(ErrorCode.DUPLICATE_RESOURCE), message)
    infos = credentials.get(name)
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, int(ErrorCode.RESOURCE_NOT_FOUND), message)
    return DescribeUserScramCredentialsResult(name, 0, None, infos)
