"""Values that stand elsewhere: `${provider:path:key}` in a properties file (KIP-297, KIP-421), as Kafka's own providers read them.

Pure given `read` (the text of a file, or None) and `environment`. What a provider does not have stays as it is written, as in
Kafka.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from .problems import ConfigError
from .properties import parse_properties

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
FILE: Final = f"{_PACKAGE}FileConfigProvider"
DIRECTORY: Final = f"{_PACKAGE}DirectoryConfigProvider"
ENVIRONMENT: Final = f"{_PACKAGE}EnvVarConfigProvider"
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

Read = Callable[[str], str | None]


def resolve(properties: Mapping[str, str], environment: Mapping[str, str], read: Read) -> dict[str, str]:
    """The properties with their variables filled in; ConfigError for a provider that is not one of Kafka's three."""
    if problems := list(provider_problems(properties)):
        raise ConfigError(problems)
    providers = {
        name: _Provider(kind, name, properties, environment, read) for name, kind in _classes(properties).items()
    }

    def value(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        text = None if provider is None else provider.value(match[2] or "", match[3])
        return match[0] if text is None else text

    return {name: text if "${" not in text else _VARIABLE.sub(value, text) for name, text in properties.items()}


def provider_problems(properties: Mapping[str, str]) -> Iterator[str]:
    for name, kind in _classes(properties).items():
        if kind not in {FILE, DIRECTORY, ENVIRONMENT}:
            yield (
                f"config.providers.{name}.class={kind}: Java classes cannot be loaded here. "
                f"Accepted: {FILE}, {DIRECTORY}, {ENVIRONMENT}"
            )


def _classes(properties: Mapping[str, str]) -> dict[str, str]:
    """Name -> class. Kafka leaves a provider without a class out."""
    names = [name.strip() for name in properties.get("config.providers", "").split(",")]
    classes = {name: properties.get(f"config.providers.{name}.class", "").strip() for name in names if name}
    return {name: kind for name, kind in classes.items() if kind}


class _Provider:
    def __init__(
        self, kind: str, name: str, properties: Mapping[str, str], environment: Mapping[str, str], read: Read
    ) -> None:
        self._kind, self._environment, self._read = kind, environment, read
        prefix = f"config.providers.{name}.param."
        self._allowed = [
            path.strip() for path in properties.get(f"{prefix}allowed.paths", "").split(",") if path.strip()
        ]
        for allowed in self._allowed:
            if not posixpath.isabs(allowed):
                raise ConfigError([f"{prefix}allowed.paths={allowed}: the path is not absolute"])
        pattern = properties.get(f"{prefix}allowlist.pattern", "").strip() or ".*"
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise ConfigError([f"{prefix}allowlist.pattern={pattern}: not a regular expression: {error}"]) from None

    def value(self, path: str, key: str) -> str | None:
        """None for a key that is not there or not allowed; ConfigError for a file that cannot be read."""
        if self._kind == ENVIRONMENT:
            return self._environment.get(key) if self._pattern.fullmatch(key) else None
        if not path or not self._is_allowed(path):
            return None
        if self._kind == DIRECTORY:
            return None if "/" in key else self._read(f"{path}/{key}")
        text = self._read(path)
        if text is None:
            raise ConfigError([f"${{...:{path}:{key}}}: cannot read {path}"])
        return parse_properties(text).get(key)

    def _is_allowed(self, path: str) -> bool:
        """Compared without `..`, as in Kafka."""
        normal = posixpath.normpath(path)
        return not self._allowed or any(
            f"{normal}/".startswith(f"{posixpath.normpath(allowed).rstrip('/')}/") for allowed in self._allowed
        )
