"""What went wrong, in words for the person at the page."""

from __future__ import annotations

from ottla.model.extras import require
from ottla.model.user_error import UserError


class ConsoleError(UserError):
    """`status` is the HTTP status of the page that shows the message."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def require_here(purpose: str, *libraries: str) -> None:
    """As `require`, for a page: the person at the page is not the person who installs."""
    try:
        require(purpose, *libraries)
    except UserError as error:
        raise ConsoleError(f"On the console's machine, {error}") from error
