"""DescribeUserScramCredentials: which mechanisms a user has, and with how many iterations; never the credential."""

from __future__ import annotations

from collections import Counter

from ottla.broker.context import RequestContext
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from ottla.protocol.generated.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    image = context.broker.image
    wanted = Counter(user.name for user in request.users or ()) or Counter({name for _, name in image.scram})
    return DescribeUserScramCredentialsResponse(
        error_message="", results=[_described(image, name, count) for name, count in wanted.items()]
    )


def _described(image: MetadataImage, name: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, int(ErrorCode.DUPLICATE_RESOURCE), message)
    infos = [
        CredentialInfo(mechanism, record.iterations)
        for (mechanism, user), record in sorted(image.scram.items())
        if user == name
    ]
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, int(ErrorCode.RESOURCE_NOT_FOUND), message)
    return DescribeUserScramCredentialsResult(name, 0, None, infos)
