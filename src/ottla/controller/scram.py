"""AlterUserScramCredentials: SCRAM users as records of the metadata log.

A request holds no password, only a salted password. The record holds keys that are derived from the salted password.
"""

from __future__ import annotations

from ottla.controller.outcome import OK, ApiError
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.generated.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.primitives import Message
from ottla.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, NAMES, credential_of

_TWICE = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def alter_user_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest, _context: ControllerRequestContext
) -> Decision[Message, AlterUserScramCredentialsResponse]:
    changes: dict[str, Message] = {}
    errors: dict[str, ApiError] = {}
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for change in alterations:
        name = change.name
        if name in errors:
            continue
        if changes.pop(name, None) is not None:
            errors[name] = _TWICE
            continue
        error = _check(state, change)
        if error.failed:
            errors[name] = error
        else:
            changes[name] = _record(change)
    results = [AlterUserScramCredentialsResult(name, 0, None) for name in changes]
    results += [AlterUserScramCredentialsResult(name, error.code, error.message) for name, error in errors.items()]
    return Decision(AlterUserScramCredentialsResponse(results=results), list(changes.values()))


def _check(state: ControllerState, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> ApiError:
    if not change.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in NAMES:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialUpsertion):
        if change.iterations < MIN_ITERATIONS:
            return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > MAX_ITERATIONS:
            return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not change.salted_password:  # everybody who has the salt could log in
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    elif (change.mechanism, change.name) not in state.image.scram:
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return OK


def _record(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Message:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(change.name, change.mechanism)
    salt, salted = bytes(change.salt), bytes(change.salted_password)
    credential = credential_of(NAMES[change.mechanism], salted, salt, change.iterations)
    return UserScramCredentialRecord(change.name, change.mechanism, *credential)
