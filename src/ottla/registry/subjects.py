"""Subjects and contexts: `orders-value` is in the default context, `:.staging:orders-value` in context `.staging`.

Inside the registry a subject is always the qualified name; the default context's is left bare, as Confluent writes it.
"""

from __future__ import annotations

import re

from ottla.registry.errors import invalid_subject

DEFAULT_CONTEXT = "."
_MAX_SUBJECT_LENGTH = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def context_of(subject: str) -> str:
    """The context of a qualified subject."""
    if subject.startswith(":."):
        end = subject.find(":", 1)
        if end > 0:
            return subject[1:end]
    return DEFAULT_CONTEXT


def local_name(subject: str) -> str:
    """The subject without its context."""
    if subject.startswith(":."):
        end = subject.find(":", 1)
        if end > 0:
            return subject[end + 1 :]
    return subject


def qualified(context: str, name: str) -> str:
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def normal(subject: str) -> str:
    """One spelling for one subject: `:.:a` is `a`. Refuses what could not be written down again."""
    if len(subject) > _MAX_SUBJECT_LENGTH or _CONTROL.search(subject):
        raise invalid_subject(subject[:64])
    if subject.startswith(":."):
        return qualified(context_of(subject), local_name(subject))
    return subject


def in_context(context: str, subject: str) -> str:
    """The subject as a request under /contexts/CONTEXT/... means it."""
    if subject.startswith(":."):
        return normal(subject)
    return normal(qualified(context_name(context), subject))


def context_name(text: str) -> str:
    """`:.ctx:`, `.ctx` and `ctx` as a path has them."""
    name = text.strip(":")
    return name if name.startswith(".") else f".{name}"
