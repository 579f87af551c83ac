"""Why a node does not start: one line with what happened, where, and what to do."""

from __future__ import annotations


class StartupError(Exception):
    """The code that raises this error has changed nothing on disk."""
