"""Fields of messages that a reader may not see, by rule. Pure: trees in, trees out; decoding is the caller's work.

- A rule names topics, one field and a mode: `hide`, `hash` (HMAC-SHA256 with the operator's key: equal values stay
  equal) or `keep-last-4`.
- A field is `key`, `value` or `header.NAME`, and for key and value a path below: `value.card.number`. A path passes
  through arrays by itself, `*` stands for any field, and names are compared without regard to
  case and underscores.
- A rule covers everything below its field; names of fields below stay in `hash` and `keep-last-4`.
- A record of an unexpected shape is masked rather than shown: text, a number or bytes where a rule's path continues.
  Examples: a card that is no object, JSON inside a text, a list of bare values. Behind `*` only text and bytes that
  look like JSON are masked.
- A record that cannot be decoded cannot be masked: the caller hides all of it (`ottla.console.messages.masked`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ottla.security.grants import TOPIC, GrantedUser, matches

MODES = ("hide", "hash", "keep-last-4")
HIDDEN = "***"
_SHOWN_LAST = 4
_HASH_DIGITS = 32
_BEFORE_JSON = ' \t\r\n\f\v\ufeff"\\'
"""Blanks, a byte order mark, and the quotes of a text that was encoded twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRule:
    topics: tuple[str, ...]
    part: str
    """key, value or header"""
    path: tuple[str, ...]
    """Below the part; of a header, its name."""
    mode: str
    exempt: tuple[tuple[str, str], ...] = ()
    """("role" | "group" | "user", name) of users who see the field."""

    def exempts(self, user: GrantedUser | None, topic: str) -> bool:
        """`user` is None for an export without a user: no exemption applies."""
        if user is None or not user.authenticated:
            return False
        return any(
            (kind == "user" and user.name == name)
            or (kind == "group" and name in user.groups)
            or (kind == "role" and user.rights.may(name, TOPIC, topic))
            for kind, name in self.exempt
        )


@dataclass(frozen=True, slots=True)
class TopicMask:
    """The rules that apply to one reader on one topic; at least one rule."""

    rules: tuple[MaskRule, ...]
    secret: bytes

    def of(self, part: str) -> list[MaskRule]:
        return [rule for rule in self.rules if rule.part == part]

    def tree(self, part: str, tree: Any) -> Any:
        """A decoded key or value with its fields masked; the tree that was given stays as it is."""
        for rule in self.of(part):
            tree = _below(tree, [_plain(step) for step in rule.path], rule.mode, self.secret, named=True)
        return tree

    def header(self, name: str, data: bytes | None) -> bytes | None:
        for rule in self.of("header"):
            if data is not None and rule.path[0].lower() in ("*", name.lower()):
                data = masked_leaf(data.decode("utf-8", "replace"), rule.mode, self.secret).encode()
        return data


@dataclass(frozen=True, slots=True)
class Masks:
    rules: tuple[MaskRule, ...] = ()
    secret: bytes = b""

    def on(self, topic: str, user: GrantedUser | None) -> TopicMask | None:
        """None: this reader sees all of the topic."""
        topic_rules = tuple(
            rule for rule in self.rules if matches(rule.topics, topic) and not rule.exempts(user, topic)
        )  # fmt: skip
        return TopicMask(topic_rules, self.secret) if topic_rules else None


NO_MASKS = Masks()


def masked_leaf(value: Any, mode: str, secret: bytes) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    if mode == "hash":
        return hmac.new(secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:_HASH_DIGITS]
    if mode == "keep-last-4" and len(text) >= 2 * _SHOWN_LAST:
        return HIDDEN + text[-_SHOWN_LAST:]
    return HIDDEN  # a short text would be shown by half or whole


def _plain(name: str) -> str:
    """Protobuf's card_number is cardNumber in its JSON form: both are the field that a rule means."""
    return name.replace("_", "").lower()


def _below(tree: Any, path: list[str], mode: str, secret: bytes, *, named: bool) -> Any:
    """`named`: the rule's path names the field of this tree and does not use `*`."""
    if isinstance(tree, list | tuple):
        return [_below(item, path, mode, secret, named=named) for item in tree]
    if not path:
        return _covered(tree, mode, secret)
    if isinstance(tree, dict):
        step = path[0]
        return {
            name: _below(value, path[1:], mode, secret, named=step != "*")
            if step in ("*", _plain(str(name)))
            else value
            for name, value in tree.items()
        }
    return _covered(tree, mode, secret) if named or _may_hold_json(tree) else tree


def _may_hold_json(leaf: Any) -> bool:
    text = bytes(leaf).decode("utf-8", "replace") if isinstance(leaf, bytes | bytearray | memoryview) else leaf
    return isinstance(text, str) and text.lstrip(_BEFORE_JSON)[:1] in ("{", "[")


def _covered(tree: Any, mode: str, secret: bytes) -> Any:
    """Mask the field and everything below it; null stays null."""
    if isinstance(tree, dict):
        if mode == "hide":
            return HIDDEN
        return {name: _covered(value, mode, secret) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_covered(item, mode, secret) for item in tree]
    return None if tree is None else masked_leaf(tree, mode, secret)


def parse_field(field: str) -> tuple[str, tuple[str, ...]]:
    """`value.card.number` -> ("value", ("card", "number")). Raises ValueError if the text is no field."""
    part, *path = field.replace("[]", "").replace("[*]", "").split(".")
    if part == "header":
        path = [".".join(path)] if path else []
    if part not in ("key", "value", "header") or not all(path) or (part == "header" and not path):
        raise ValueError(f"{field!r} is not a field: write key, value, value.card.number, key.id or header.NAME")
    return part, tuple(path)


def parse_exempt(words: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`admin` and `role:admin` name a role, `group:NAME` a group, `user:NAME` a user."""
    exemptions = []
    for word in words:
        kind, colon, name = word.partition(":")
        kind, name = (kind, name) if colon else ("role", word)
        if kind not in ("role", "group", "user") or not name:
            raise ValueError(f"{word!r}: write role:admin, group:NAME or user:NAME")
        if kind == "role" and name not in ("read", "viewer", "write", "operator", "admin"):
            raise ValueError(f"{name!r} is not a role")
        exemptions.append((kind, name))
    return tuple(exemptions)
