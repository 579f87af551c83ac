"""The client of a group request: what a group stores of its connection, whichever protocol the client speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Caller(NamedTuple):
    client_id: str
    client_host: str
    version: int
    """The version of the request."""
    may_describe: Callable[[str], bool] | None = None
    """Where ACLs apply: whether the client may see a topic that its regular expression matches."""
