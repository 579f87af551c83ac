"""What nobody awaits and the event loop reports: one line of the log each, a traceback only for what is a bug of ours."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.env.logging import get_logger

log = get_logger(__name__)
_TLS = "Fatal error on SSL protocol"


def on_loop_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A TLS peer whose socket went away between two steps of uvloop is fatal to it; for us it is a hangup."""
    error, message = context.get("exception"), str(context.get("message", ""))
    transport = context.get("transport")
    if message == _TLS and transport is not None and transport.is_closing():
        log.warning("tls.lost", reason=str(error).partition(";")[2].strip() or str(error))
        return
    log.error("loop.failed", message=message, exc_info=error)
