"""What the event loop reports: a TLS peer that went away is one line, a bug is one with its traceback."""

from __future__ import annotations

import asyncio

import pytest

from ottla.server.loop_failures import on_loop_failure


class Transport:
    def __init__(self, *, closed: bool) -> None:
        self._closed = closed

    def is_closing(self) -> bool:
        return self._closed


@pytest.mark.parametrize(("closed", "traceback"), [(True, False), (False, True)])
def test_a_lost_tls_peer_is_a_line(capsys: pytest.CaptureFixture[str], closed: bool, traceback: bool) -> None:
    loop = asyncio.new_event_loop()
    try:
        try:
            raise RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed")
        except RuntimeError as error:
            context = {"message": "Fatal error on SSL protocol", "exception": error}
        on_loop_failure(loop, context | {"transport": Transport(closed=closed)})
    finally:
        loop.close()
    printed = capsys.readouterr().err
    assert ("Traceback" in printed) is traceback
    assert ("tls.lost reason='the handler is closed'" in printed) is closed
    assert ("loop.failed" in printed) is not closed
