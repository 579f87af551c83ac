"""Texts that a peer has chosen, where they are kept or shown: client ids and group ids have up to 32 KB."""

from __future__ import annotations

MAX_TEXT = 256


def cut(text: str) -> str:
    """The text, or its first `MAX_TEXT` characters and how many there were."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"
