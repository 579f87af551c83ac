"""Regular expressions that clients send, for listing."""

from __future__ import annotations

import re
from collections.abc import Callable

from ottla.model.errors import ErrorCode, KafkaError


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a whole name matches; INVALID_REGULAR_EXPRESSION for what is no expression."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{pattern}` is not a valid regular expression: {error}.",
        ) from error
    return lambda name: compiled.fullmatch(name) is not None
