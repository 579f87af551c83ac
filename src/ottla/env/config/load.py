"""From a properties file to a BrokerConfig, or to one ConfigError that names every problem.

A name that Kafka does not know is accepted, as in Kafka; `unknown_lines` names the nearest setting that exists, and with
`strict` such a name is a problem. A name that Kafka knows and that means nothing here is accepted, too; `no_effect_line`
reports it in one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .broker.config import LISTENER_PREFIX, BrokerConfig, Layers, listener_base, with_both_ids
from .cross import cross_problems
from .effects import NO_REPORTERS, NO_TIERS
from .problems import ConfigError
from .properties import MalformedEscape, parse_properties
from .providers import provider_problems
from .settings import PASSWORD, REQUIRED, Kind, Setting
from .values import BadValue, parse

PLUGIN_PREFIXES: Final = {
    "config.providers.": "used",
    "metrics.context.": NO_REPORTERS,
    "rsm.config.": NO_TIERS,
    "rlmm.config.": NO_TIERS,
}
"""Names that belong to a plug-in of Kafka's, with their effect: any name under them is known."""

REMOVED: Final = {
    "broker.id.generation.enable": "",
    "control.plane.listener.name": "",
    "delegation.token.master.key": "delegation.token.secret.key",
    "group.coordinator.new.enable": "",
    "inter.broker.protocol.version": "",
    "log.message.downconversion.enable": "",
    "log.message.format.version": "",
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms",
    "offsets.commit.required.acks": "",
    "reserved.broker.max.id": "",
}
"""Names that Kafka 4.0 dropped, and what took their place."""
_REMOVED_PREFIXES: Final = ("zookeeper.", "password.encoder.")

_KIND_WORDS: Final = {
    Kind.BOOLEAN: "true or false",
    Kind.INT: "a whole number of 32 bits",
    Kind.LONG: "a whole number of 64 bits",
    Kind.SHORT: "a whole number of 16 bits",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a list, separated by commas",
}


def load_text(text: str, *, strict: bool = False) -> BrokerConfig:
    """The configuration in the text of a properties file."""
    try:
        return load(parse_properties(text), strict=strict)
    except MalformedEscape as error:
        raise ConfigError([str(error)]) from error


def load(properties: Mapping[str, str], *, strict: bool = False) -> BrokerConfig:
    """With `strict` a name that Kafka does not know is a problem."""
    layer = with_both_ids(properties)
    problems = [
        *_missing(layer),
        *_bad(properties),
        *provider_problems(properties),
        *(_unknown(properties) if strict else ()),
    ]
    if problems:
        raise ConfigError(problems)
    config = BrokerConfig.from_layers(Layers(layer, {}, {}))
    if problems := [f"{problem.name}: {problem.message}" for problem in cross_problems(config)]:
        raise ConfigError(problems)
    return config


def unknown_lines(properties: Mapping[str, str]) -> list[str]:
    """A line for each name that Kafka does not know, with the nearest name that it knows."""
    return list(_unknown(properties))


def ineffective(config: BrokerConfig) -> list[tuple[str, str]]:
    """(name, reason) of what the file sets and nothing here reads."""
    unread: list[tuple[str, str]] = []
    for name in config.layers.static:
        setting = config.TABLE.get(listener_base(name) or name)
        effect = _plugin_effect(name) if setting is None else setting.effect
        if effect is not None and effect.startswith("no effect"):
            unread.append((name, effect.partition(": ")[2]))
    return unread


def no_effect_line(config: BrokerConfig) -> str | None:
    """The one line of a start about settings without effect; None when there are none."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in ineffective(config):
        by_reason.setdefault(reason, []).append(name)
    if not by_reason:
        return None
    return "no effect here: " + "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())


def accepted_values(setting: Setting) -> str:
    """What a setting takes, in words: its check's, or its type's."""
    limits = setting.check.accepts if setting.check is not None else ""
    words = _KIND_WORDS.get(setting.kind, "text")
    if not limits:
        return words
    return f"{words}, {limits}" if limits.startswith("[") else limits


def _missing(properties: Mapping[str, str]) -> Iterator[str]:
    for name, setting in BrokerConfig.TABLE.items():
        if setting.default is REQUIRED and name not in properties:
            yield f"{name}: missing; it has no default. {setting.doc} Accepted: {accepted_values(setting)}"


def _bad(properties: Mapping[str, str]) -> Iterator[str]:
    for name, text in properties.items():
        base = listener_base(name)
        setting = BrokerConfig.TABLE.get(base or name)
        if setting is None or _upper_case_listener(name, base):
            continue
        try:
            parse(setting, text)
        except BadValue as error:
            shown = "[hidden]" if setting.kind is PASSWORD else text
            yield f"{name}={shown}: {error.why}. Accepted: {accepted_values(setting)}"


def _plugin_effect(name: str) -> str | None:
    return next((effect for prefix, effect in PLUGIN_PREFIXES.items() if name.startswith(prefix)), None)


def _upper_case_listener(name: str, base: str | None) -> bool:
    """Kafka does not see a listener's setting under a prefix that is not in lower case."""
    return base is not None and (prefix := name[: -len(base)]) != prefix.lower()


def _unknown(properties: Mapping[str, str]) -> Iterator[str]:
    for name in properties:
        base = listener_base(name)
        if base is not None and base in BrokerConfig.TABLE and _upper_case_listener(name, base):
            lower = name[: -len(base)].lower()
            yield f"{name}: the listener's name must be in lower case here; write {lower}{base}"
        elif (base or name) not in BrokerConfig.TABLE and _plugin_effect(name) is None:
            yield unknown_line(name)


def unknown_line(name: str) -> str:
    """Why a name has no effect, and what to write instead."""
    base = listener_base(name)
    if name in REMOVED or name.startswith(_REMOVED_PREFIXES):
        instead = REMOVED.get(name)
        return f"{name}: removed in Kafka 4.0; " + (f"use {instead}" if instead else "remove the line")
    import difflib  # only for a file with such a name

    near = difflib.get_close_matches(base or name, BrokerConfig.TABLE, n=1, cutoff=0.6)
    prefix = name[: -len(base)] if base is not None and name.startswith(LISTENER_PREFIX) else ""
    hint = f"did you mean {prefix}{near[0]}?" if near else "remove the line, or see docs/configuration.md"
    return f"{name}: Kafka 4.3 has no such setting; {hint}"
