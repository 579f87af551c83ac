"""Regular expressions that clients send, for listing."""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.groups.consumer.re2 import Pattern, PatternError
from ottla.model.errors import ErrorCode, KafkaError


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a whole name matches; raises INVALID_REGULAR_EXPRESSION for text that is not an RE2 expression."""
    try:
        return Pattern(pattern).matches
    except PatternError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{pattern}` is not a valid regular expression: {error}.",
        ) from error
