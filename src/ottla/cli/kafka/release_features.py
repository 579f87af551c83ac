"""The features of a release, for kafka-storage and kafka-features."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.metadata.features import (
    DEPENDENCIES,
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    default_levels,
    metadata_version_from_str,
)

_ORDER = (KRAFT_VERSION, TRANSACTION_VERSION, GROUP_VERSION, ELR_VERSION, SHARE_VERSION, STREAMS_VERSION)
_KRAFT_ONE_SINCE = 21  # 3.9
_UNRELEASED = "4.4-IV0"
"""Kafka 4.3.1 already lists this name."""


class ReleaseError(Exception):
    pass


def release_levels(text: str | None) -> dict[str, int]:
    """Every feature's level in a release, metadata.version first. Raises ReleaseError for an unknown release."""
    level = LATEST_METADATA_VERSION if text is None else metadata_version_from_str(text)
    if level is None:
        listed = ", ".join([*METADATA_VERSIONS.values(), _UNRELEASED])
        raise ReleaseError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {listed}")
    levels = {**default_levels(level), KRAFT_VERSION: int(level >= _KRAFT_ONE_SINCE)}
    return {METADATA_VERSION: level, **{name: levels[name] for name in _ORDER}}


def mapping_lines(text: str | None) -> list[str]:
    levels = release_levels(text)
    shown = text or METADATA_VERSIONS[levels[METADATA_VERSION]]
    return [f"{name}={level}" + (f" ({shown})" if name == METADATA_VERSION else "") for name, level in levels.items()]


class LevelWords(NamedTuple):
    """A tool's error texts for a wrong `feature=level` or an unknown level; those of kafka-storage differ."""

    no_equals: str = "Can't parse feature=level string {text}: equals sign not found."
    no_number: str = "Can't parse feature=level string {text}: unable to parse {level} as a short."
    no_level: str = "No feature:{name} with feature level {level}"


STORAGE_WORDS = LevelWords(
    "Invalid feature format: {text}. Expected format: 'feature=version' (e.g. 'group.version=1')",
    "Invalid version format: {level} for feature {name}",
    "Feature level {level} is not supported for feature {name}",
)


def feature_and_level(text: str, words: LevelWords = LevelWords()) -> tuple[str, int]:  # noqa: B008 - a constant
    name, equals, level = text.strip().partition("=")
    if not equals:
        raise ReleaseError(words.no_equals.format(text=text))
    if not re.fullmatch(r"[-+]?\d{1,5}", level) or not -(1 << 15) <= int(level) < 1 << 15:
        raise ReleaseError(words.no_number.format(text=text, name=name, level=level))
    return name.strip(), int(level)


def dependencies_lines(features: Sequence[str], words: LevelWords = LevelWords()) -> Iterator[str]:  # noqa: B008 - as above
    for text in features:
        name, level = feature_and_level(text, words)
        if name not in SUPPORTED_FEATURES:
            raise ReleaseError(f"Unknown feature: {name}")
        if name == METADATA_VERSION and level not in METADATA_VERSIONS:
            raise ReleaseError(f"Unknown metadata.version {level}")
        if level not in SUPPORTED_FEATURES[name]:
            raise ReleaseError(words.no_level.format(name=name, level=level))
        needed = DEPENDENCIES.get((name, level))
        shown = f"{name}={level}" + (f" ({METADATA_VERSIONS[level]})" if name == METADATA_VERSION else "")
        if needed is None:
            yield f"{shown} has no dependencies."
            continue
        other, minimum = needed
        yield f"{shown} requires:"
        yield f"    {other}={minimum}" + (f" ({METADATA_VERSIONS[minimum]})" if other == METADATA_VERSION else "")
