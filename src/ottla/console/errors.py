"""What went wrong, in words for the person at the page."""

from __future__ import annotations


class ConsoleError(Exception):
    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
