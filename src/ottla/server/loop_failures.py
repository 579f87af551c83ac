"""Errors that the event loop reports because no task awaits them: one log line each, a traceback only for our own
bugs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.env.logging import get_logger

log = get_logger(__name__)
_TLS = "Fatal error on SSL protocol"


def on_loop_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """If a TLS peer disappears between two steps, uvloop reports a fatal error; here it is only a lost connection."""
    error, message = context.get("exception"), str(context.get("message", ""))
    transport = context.get("transport")
    if message == _TLS and transport is not None and transport.is_closing():
        log.warning("tls.lost", reason=str(error).partition(";")[2].strip() or str(error))
        return
    log.error("loop.failed", message=message, exc_info=error)
