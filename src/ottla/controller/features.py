"""UpdateFeatures: one refusal refuses the whole request."""

from __future__ import annotations

from ottla.controller.elr import elr_safety_records
from ottla.controller.outcome import OK
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.features import (
    DEPENDENCIES,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    Range,
)
from ottla.metadata.records import FeatureLevelRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.generated.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from ottla.protocol.primitives import Message

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


def update_features(
    state: ControllerState, request: UpdateFeaturesRequest, context: ControllerRequestContext
) -> Decision[Message, UpdateFeaturesResponse]:
    proposed = {**state.image.features, METADATA_VERSION: state.image.metadata_version}
    proposed.update({update.feature: update.max_version_level for update in request.feature_updates})
    records: list[Message] = []
    try:
        for update in request.feature_updates:
            # Version 0 has allow_downgrade instead, which Kafka reads and does not heed.
            records += _update(state, update, update.upgrade_type, proposed)
        if proposed.get(KRAFT_VERSION, 0) > state.quorum.kraft_version:
            # The last step, because it appends the quorum's own record: after a refusal nothing else has happened.
            _raise_kraft_version(state, proposed[KRAFT_VERSION], validate_only=request.validate_only)
    except KafkaError as error:
        text = f"The update failed for all features since the following feature had an error: {error.message}"
        return Decision(UpdateFeaturesResponse(error_code=error.code, error_message=text))
    results = []
    if context.version <= 1:
        results = [
            UpdatableFeatureResult(update.feature, ErrorCode.NONE, ErrorCode.NONE.message)
            for update in request.feature_updates
        ]
    response = UpdateFeaturesResponse(error_code=OK.code, error_message=OK.message, results=results)
    return Decision(response, [] if request.validate_only else records)


def _update(
    state: ControllerState, update: FeatureUpdateKey, upgrade_type: int, proposed: dict[str, int]
) -> list[Message]:
    name, level = update.feature, update.max_version_level
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    current = state.image.metadata_version if name == METADATA_VERSION else state.image.features.get(name, 0)
    if name == KRAFT_VERSION:
        current = state.quorum.kraft_version
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    unsupported = _unsupported(state, name, level)
    if unsupported:
        raise _invalid(name, level, unsupported)
    if level < current and upgrade_type == UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and upgrade_type != UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        return _metadata_version(state, level, upgrade_type)
    if name not in SUPPORTED_FEATURES:  # level 0 of an unknown feature passed every check so far
        raise _invalid(name, level, f"Feature {name} not found.")
    _check_dependencies(name, level, proposed)
    if name == KRAFT_VERSION:
        if level < current:
            raise _invalid(KRAFT_VERSION, level, "Can't downgrade the version of this feature.")
        return []
    return [
        FeatureLevelRecord(name, level),
        *(elr_safety_records(state, dict(state.cluster_config())) if name == ELR_VERSION and level else []),
    ]


def _unsupported(state: ControllerState, name: str, level: int) -> str | None:
    supporters = [(f"Local controller {state.settings.node_id}", SUPPORTED_FEATURES)]
    supporters += [(f"Broker {broker.id}", broker.features) for broker in state.image.brokers.values()]
    for who, features in supporters:
        supported = features.get(name, Range(0, 0))
        if level in supported:
            continue
        if supported == Range(0, 0):
            return f"{who} does not support this feature."
        return f"{who} only supports versions {supported}"
    return None


def _metadata_version(state: ControllerState, level: int, upgrade_type: int) -> list[Message]:
    current = state.image.metadata_version
    if level < current:
        # Kafka has no two metadata versions that write the same records, so every downgrade would lose something.
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if upgrade_type == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )
    return [FeatureLevelRecord(METADATA_VERSION, level)]


def _raise_kraft_version(state: ControllerState, level: int, *, validate_only: bool) -> None:
    """kraft.version is a control record of the raft log, written by the quorum."""
    reason = state.quorum.upgrade_kraft_version(validate_only=validate_only)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Unable to upgrade {KRAFT_VERSION} to {level}: {reason}.")


def _check_dependencies(name: str, level: int, proposed: dict[str, int]) -> None:
    needed = DEPENDENCIES.get((name, level))
    if needed is not None and proposed.get(needed[0], 0) < needed[1]:
        raise _invalid(
            name, level, f"{name} could not be set to {level} because it depends on {needed[0]} level {needed[1]}"
        )


def _invalid(name: str, level: int, message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {message}")
