"""Why a node does not start: one line that says what, where and what to do."""

from __future__ import annotations


class StartupError(Exception):
    """Nothing was changed on disk by whoever raises this."""
