"""`sasl.jaas.config`: a login module's name and its options, in JAAS's own syntax.

Only Kafka's built-in modules are supported. A name is never loaded as code: it is looked up in a table (CVE-2023-25194,
CVE-2025-27818). Errors name the position and never the value, which may be a password.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES: Final = (PLAIN, SCRAM, OAUTHBEARER)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<comment>//[^\n]*|/\*.*?\*/)|"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>(?:\\.|[^'\\])*)'"""
    r"""|(?P<word>[\w.$\-/]+)|(?P<mark>[=;]))""",
    re.DOTALL,
)


class JaasError(ValueError):
    """The text is not one entry of a known module; the message holds no value of it."""


class JaasEntry(NamedTuple):
    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, [hidden])"


def parse_jaas(text: str) -> JaasEntry:
    """`MODULE required name="value" ...;` and nothing after it."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("mark", ";"):
        raise JaasError('a JAAS entry is: LoginModule required name="value" ...;')
    (_, module), (_, flag) = tokens[:2]
    if module not in MODULES:
        raise JaasError(f"login module {module} is not supported; login modules are {', '.join(MODULES)}")
    if flag.lower() not in _FLAGS:
        raise JaasError("the word after the login module must be required, requisite, sufficient or optional")
    return JaasEntry(module, _options(tokens[2:-1]))


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(f"character {position + 1} cannot be read")
        kind = match.lastgroup or ""
        if kind != "comment":
            value = match[kind]
            if kind in ("double", "single"):
                value = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
            tokens.append(("mark" if kind == "mark" else "text", value))
        position = match.end()
    return tokens


def _options(tokens: list[tuple[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    while tokens:
        if len(tokens) < 3 or tokens[1] != ("mark", "=") or tokens[0][0] == "mark" or tokens[2][0] == "mark":
            raise JaasError(f'option {len(options) + 1} is not name="value"')
        options[tokens[0][1]] = tokens[2][1]
        tokens = tokens[3:]
    return options
