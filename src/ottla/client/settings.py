"""A client's settings from Kafka's own property names, as `--command-config FILE` and `--command-property` give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.client.errors import BadSettings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ADDRESS = re.compile(r"^(?:[A-Za-z0-9_+]+://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    bootstrap: tuple[tuple[str, int], ...]
    controllers: bool = False
    """Whether `bootstrap` names controllers (--bootstrap-controller) instead of brokers."""
    client_id: str = "adminclient-1"
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "GSSAPI"
    sasl_jaas_config: str = ""
    ssl: Mapping[str, str] = field(default_factory=dict)
    """The ssl.* properties, without their prefix."""

    @property
    def tls(self) -> bool:
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")


VERIFICATION = "enable.ssl.certificate.verification"
"""librdkafka's name: `false` accepts every certificate."""


def parse_addresses(text: str, name: str = "bootstrap.servers") -> tuple[tuple[str, int], ...]:
    addresses = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        match = _ADDRESS.match(part)
        if not match or not 0 < int(match[2]) < 65536:
            raise BadSettings(f"Invalid url in {name}: {part}")
        addresses.append((match[1], int(match[2])))
    if not addresses:
        raise BadSettings(f"No resolvable bootstrap urls given in {name}")
    return tuple(addresses)


def client_settings(
    bootstrap: str,
    properties: Mapping[str, str] | None = None,
    *,
    controllers: bool = False,
    client_id: str | None = None,
) -> ClientSettings:
    """BadSettings when a value cannot be right; properties that a wire client has no use for are left alone."""
    client_properties = dict(properties or {})
    protocol = client_properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadSettings(
            f"Invalid value {client_properties['security.protocol']} for configuration security.protocol: "
            f"String must be one of (case insensitive): {', '.join(sorted(PROTOCOLS))}"
        )
    return ClientSettings(
        bootstrap=parse_addresses(bootstrap, "bootstrap.controllers" if controllers else "bootstrap.servers"),
        controllers=controllers,
        client_id=client_properties.get("client.id") or client_id or "adminclient-1",
        request_timeout_ms=_number(client_properties, "request.timeout.ms", 30_000),
        api_timeout_ms=_number(client_properties, "default.api.timeout.ms", 60_000),
        retry_backoff_ms=_number(client_properties, "retry.backoff.ms", 100),
        security_protocol=protocol,
        sasl_mechanism=client_properties.get("sasl.mechanism", "GSSAPI").upper(),
        sasl_jaas_config=client_properties.get("sasl.jaas.config", ""),
        ssl={
            name.removeprefix("ssl."): value
            for name, value in client_properties.items()
            if name.startswith("ssl.") or name in ("ottla.ssl.security.level", VERIFICATION)
        },
    )


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise BadSettings(f"Invalid value {text} for configuration {name}: Not a number of type INT") from None


def load_properties(path: str) -> dict[str, str]:
    """A Java properties file; OSError when it cannot be read, ValueError when Java could not.

    UTF-8 with or without a byte order mark; what is none is Latin-1, which is all that Java reads.
    """
    properties: dict[str, str] = {}
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for raw in lines:
        line = raw.lstrip()
        if not line or line[0] in "#!":
            continue
        while line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip()
        match = re.match(r"((?:\\.|[^=:\s\\])*)\s*[=:]?\s*(.*)", line)
        if match:
            properties[_unescaped(match[1])] = _unescaped(match[2])
    return properties


def _unescaped(text: str) -> str:
    def unescaped_character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ValueError("Malformed \\uxxxx encoding.")
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", unescaped_character, text)


_JAAS_OPTION = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;]+))""",
    re.DOTALL,
)


def jaas_options(text: str) -> dict[str, str]:
    """The options of the first login module in a sasl.jaas.config; in a quoted value a backslash escapes a character."""
    options = {}
    for name, double, single, bare in _JAAS_OPTION.findall(text):
        options[name] = bare or re.sub(r"\\(.)", r"\1", double or single, flags=re.DOTALL)
    return options
