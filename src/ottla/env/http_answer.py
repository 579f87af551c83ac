"""The body of an HTTP answer, whole or not at all.

`http.client` returns the first part of a body as if it were all of it when the server dies in the middle: `12` of `123`
is a number too. The caller must treat such an answer as no answer: what the server did is not known.
"""

from __future__ import annotations

from http.client import HTTPException, HTTPResponse

__all__ = ["HTTPException", "read_answer"]


def read_answer(answer: HTTPResponse, limit: int) -> bytes:
    """The whole body; ConnectionError when the connection ended before it did, or when it is longer than `limit` bytes."""
    try:
        data = answer.read(limit + 1)
    except HTTPException as error:
        raise ConnectionError(f"the answer was cut off: {error!r}") from error
    if len(data) > limit:
        raise ConnectionError(f"the answer is longer than {limit} bytes")
    if answer.length or not _has_an_end(answer):
        raise ConnectionError(f"the answer was cut off after {len(data)} bytes")
    return data


def _has_an_end(answer: HTTPResponse) -> bool:
    """Whether the headers determine where the body ends. Headers that were cut off look like headers that do not."""
    closes = "close" in (answer.getheader("Connection") or "").lower()
    return answer.length is not None or answer.chunked or closes or answer.version < 11
