"""A finding of the doctor: the fault's name, what the doctor saw, and how to correct the fault."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    name: str
    level: str
    """error, warning or ok"""
    seen: str
    fix: str = ""


def error(name: str, seen: str, fix: str) -> Finding:
    return Finding(name, "error", seen, fix)


def warning(name: str, seen: str, fix: str) -> Finding:
    return Finding(name, "warning", seen, fix)


def ok(name: str, seen: str) -> Finding:
    return Finding(name, "ok", seen)
