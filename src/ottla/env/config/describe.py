"""DescribeConfigs: the rows of a resource, with sources and synonyms as Kafka gives them.

A sensitive value (a password, an address with a login, or a name that the table does not have) is never shown, neither
here nor in a synonym.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.env.url_logins import has_login
from ottla.model.config_source import ConfigSource

from .broker.config import BrokerConfig, broker_synonyms, listener_base
from .dynamic import dynamic
from .group import ClientMetricsConfig, GroupConfig
from .settings import PASSWORD, READ_ONLY, REQUIRED, Kind, Setting
from .topic import TopicConfig
from .values import BadValue, parse, render

_OURS = "ottla."


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigRow(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    kind: int
    """A Kind, or 0 for a name that the table does not have."""
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_broker(config: BrokerConfig) -> list[ConfigRow]:
    """All settings of this broker."""
    shown = [name for name, row in config.TABLE.items() if not row.internal and not row.undeclared]
    return [_broker_row(config, name) for name in dict.fromkeys([*shown, *config.properties])]


def describe_cluster_default(config: BrokerConfig) -> list[ConfigRow]:
    """The dynamic settings of all brokers (the broker resource with an empty name)."""
    rows = []
    for name, text in config.layers.cluster.items():
        row = _broker_row(config, name)
        synonyms = tuple(s for s in row.synonyms if s.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        rows.append(row._replace(value=None if row.sensitive else text, source=_source(synonyms), synonyms=synonyms))
    return rows


def describe_topic(overrides: Mapping[str, str], config: BrokerConfig) -> list[ConfigRow]:
    """All settings of a topic with these overrides."""
    return _overridden(TopicConfig.TABLE, overrides, config, ConfigSource.DYNAMIC_TOPIC_CONFIG)


def describe_group(overrides: Mapping[str, str], config: BrokerConfig) -> list[ConfigRow]:
    """All settings of a group with these overrides."""
    return _overridden(GroupConfig.TABLE, overrides, config, ConfigSource.DYNAMIC_GROUP_CONFIG)


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigRow]:
    """All settings of a client-metrics subscription."""
    rows = []
    for name, setting in ClientMetricsConfig.TABLE.items():
        text = overrides.get(name)
        value = render(setting.kind, setting.default if text is None else parse(setting, text))
        synonyms = () if text is None else (ConfigSynonym(name, value, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),)
        rows.append(_row(setting, name, value, synonyms, read_only=False))
    return rows


def _overridden(
    table: Mapping[str, Setting], overrides: Mapping[str, str], config: BrokerConfig, source: ConfigSource
) -> list[ConfigRow]:
    shown = [name for name, setting in table.items() if not setting.internal]
    rows = []
    for name in dict.fromkeys([*shown, *overrides]):
        setting = table.get(name)
        value = None if setting is None else _effective(setting, overrides.get(name), config)
        inherited = _inherited_synonyms(setting, config, source)
        own = (ConfigSynonym(name, value, source),) if name in overrides else ()
        rows.append(_row(setting, name, value, (*own, *inherited), read_only=False))
    return rows


def _effective(setting: Setting, text: str | None, config: BrokerConfig) -> str | None:
    value = None
    if text is not None:
        try:
            value = parse(setting, text)
        except BadValue:
            value = None
    if value is None:
        value = config.inherited(setting)
    return render(setting.kind, setting.default if value is None else value)


def _inherited_synonyms(
    setting: Setting | None, config: BrokerConfig, source: ConfigSource
) -> tuple[ConfigSynonym, ...]:
    if setting is None:
        return ()
    if setting.synonyms:
        return _layer_synonyms(config, setting.synonyms[0].name, sensitive=setting.kind is PASSWORD)
    if source is ConfigSource.DYNAMIC_GROUP_CONFIG:
        default = render(setting.kind, setting.default)
        return (ConfigSynonym(setting.name, default, ConfigSource.DEFAULT_CONFIG),)
    return ()


def _broker_row(config: BrokerConfig, name: str) -> ConfigRow:
    setting = _described_setting(config, name)
    exact = config.TABLE.get(name)
    sensitive = setting is None or setting.kind is PASSWORD
    if sensitive:
        value = None
    elif exact is None or exact.internal or exact.undeclared:
        value = config.properties[name]
    else:
        value = render(exact.kind, getattr(config, exact.attribute))
    return _row(setting, name, value, _layer_synonyms(config, name, sensitive=sensitive), read_only=not dynamic(name))


def _described_setting(config: BrokerConfig, name: str) -> Setting | None:
    """The row behind a plain or listener-prefixed name. A read-only name that Kafka does not list counts as unknown.

    Our own names are known: the console finds a node's HTTP address by its setting, and `ottla doctor --security` what a
    listener accepts.
    """
    base = listener_base(name) or name
    setting = config.TABLE.get(name) or config.TABLE.get(base)
    if setting is not None and setting.undeclared and setting.mode == READ_ONLY and not base.startswith(_OURS):
        return None
    return setting


def _row(
    setting: Setting | None, name: str, value: str | None, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool
) -> ConfigRow:
    with_login = any(text is not None and has_login(text) for text in (value, *(s.value for s in synonyms)))
    if with_login:
        value, synonyms = None, tuple(synonym._replace(value=None) for synonym in synonyms)
    return ConfigRow(
        name=name,
        value=value,
        source=_source(synonyms),
        read_only=read_only,
        sensitive=with_login or setting is None or setting.kind is PASSWORD,
        kind=0 if setting is None else int(setting.kind),
        synonyms=synonyms,
        documentation=None if setting is None else setting.doc,
    )


def _source(synonyms: tuple[ConfigSynonym, ...]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG


def _layer_synonyms(config: BrokerConfig, name: str, *, sensitive: bool) -> tuple[ConfigSynonym, ...]:
    """Where `name` is set, strongest layer first; what comes before its own first mention does not count for it."""
    synonyms = list(_mentions(config, broker_synonyms(name), sensitive=sensitive))
    first = next((index for index, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms))
    return tuple(synonyms[first:])


def _mentions(config: BrokerConfig, names: Iterable[str], *, sensitive: bool) -> Iterator[ConfigSynonym]:
    names = tuple(names)
    layers = (
        (config.layers.broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.layers.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.layers.static, ConfigSource.STATIC_BROKER_CONFIG),
    )
    for layer, source in layers:
        for name in names:
            if name in layer:
                yield ConfigSynonym(name, None if sensitive else layer[name], source)
    for name in names:
        setting = config.TABLE.get(name)
        if setting is None or setting.undeclared or setting.default is None or setting.default is REQUIRED:
            continue
        yield ConfigSynonym(name, None if sensitive else _default(setting), ConfigSource.DEFAULT_CONFIG)


def _default(setting: Setting) -> str | None:
    return render(Kind(setting.kind), setting.default)
