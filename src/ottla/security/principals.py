"""Principals: `User:NAME` texts, and a certificate's distinguished name turned into one (ssl.principal.mapping.rules)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Name

ANONYMOUS: Final = "User:ANONYMOUS"
USER_TYPE: Final = "User"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|\n|$)\s*"
)
_SHORT_NAMES: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
"""The attributes that RFC 2253 names; Java writes the others as OID=#hex."""


class PrincipalRuleError(ValueError):
    """ssl.principal.mapping.rules cannot be read."""


def user(name: str) -> str:
    return f"User:{name}"


def split_principal(principal: str) -> tuple[str, str]:
    """(type, name)."""
    kind, _, name = principal.partition(":")
    return kind, name


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str
    case: str


def principal_mapper(text: str) -> Callable[[str], str]:
    """From a distinguished name to a user's name. A name that no rule fits is refused with PrincipalRuleError."""
    rules = _parse(text)

    def mapped(name: str) -> str:
        for pattern, replacement, case in rules:
            if pattern is None:
                return name
            match = pattern.fullmatch(name)
            if match is not None:
                made = match.expand(replacement)
                return made.lower() if case == "L" else made.upper() if case == "U" else made
        raise PrincipalRuleError(f"no rule applies to {name}")

    return mapped


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position, text = 0, text.strip() or "DEFAULT"
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None or match.end() == position:
            raise PrincipalRuleError(f"Invalid rule: `{text[position:]}`")
        if match["default"]:
            rules.append(_Rule(None, "", ""))
        else:
            try:
                pattern = re.compile(match["pattern"])
                replacement = re.sub(r"\$(\d)", r"\\g<\1>", match["replacement"])
            except re.error as error:
                raise PrincipalRuleError(f"Invalid rule: `{match[0].strip()}`: {error}") from error
            rules.append(_Rule(pattern, replacement, match["case"]))
        position = match.end()
    return rules


def distinguished_name(subject: Name) -> str:
    """As Java's X500Principal.getName() spells it (RFC 2253): most specific first."""
    return ",".join("+".join(_attribute(attribute) for attribute in rdn) for rdn in reversed(list(subject.rdns)))


def _attribute(attribute: Any) -> str:
    oid = attribute.oid.dotted_string
    short = _SHORT_NAMES.get(oid)
    if short is None:
        value = attribute.value.encode()
        tag = b"\x16" if value.isascii() and oid == "1.2.840.113549.1.9.1" else b"\x0c"
        return f"{oid}=#{(tag + _der_length(len(value)) + value).hex()}"
    return f"{short}={_escaped(attribute.value)}"


def _der_length(length: int) -> bytes:
    if length < 0x80:
        return bytes([length])
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


def _escaped(value: str) -> str:
    made = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if made[:1] in ("#", " "):
        made = "\\" + made
    if made.endswith(" ") and len(value) > 1:
        made = made[:-1] + "\\ "
    return made
