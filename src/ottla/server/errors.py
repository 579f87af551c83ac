"""Why a node does not start: one line with what happened, where, and what to do."""

from __future__ import annotations

from ottla.model.user_error import UserError


class StartupError(UserError):
    """The code that raises this error has changed nothing on disk."""
