"""BrokerConfig: the typed settings of one node, with the layers they came from and what follows from them.

A value's layers, strongest first: dynamic for this broker, dynamic for the cluster, the properties file, the default.
Instances are immutable; a dynamic change makes a new one (`with_dynamic`). Values were checked before (`load`,
`dynamic`); this module only puts them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from ottla.env.config.checks import split_host_port
from ottla.env.config.listeners import Endpoint, parse_endpoints, parse_map, protocol_map
from ottla.env.config.settings import Setting, slots_of
from ottla.env.config.topic import TopicConfig
from ottla.env.config.values import BadValue, parse

from .groups import GroupSettings
from .log import LogSettings
from .network import NetworkSettings
from .node import NodeSettings
from .operations import OperationsSettings
from .ottla import OttlaSettings
from .quorum import QuorumSettings
from .remote import RemoteSettings
from .replication import ReplicationSettings
from .sasl import SaslSettings
from .security import SecuritySettings
from .share import ShareSettings
from .transactions import TransactionSettings
from .undeclared import UndeclaredSettings

_SYNONYMS: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
LISTENER_PREFIX: Final = "listener.name."
MECHANISM_SETTINGS: Final = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
"""Settings that a listener may set per SASL mechanism: `listener.name.L.MECHANISM.` and the name."""


class Layers(NamedTuple):
    """Name -> text as it was given, per layer."""

    static: Mapping[str, str]
    cluster: Mapping[str, str]
    broker: Mapping[str, str]


NO_LAYERS: Final = Layers({}, {}, {})


def listener_base(name: str) -> str | None:
    """The plain name of a listener-prefixed one; None when it has no such prefix."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, dot, base = name[len(LISTENER_PREFIX) :].partition(".")
    if not dot:
        return None
    return next((setting for setting in MECHANISM_SETTINGS if base.endswith(setting)), base)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """All names that give the value of `name`, strongest first."""
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    base = listener_base(name)
    if base is not None:
        return (name, base)
    return next((family for family in _SYNONYMS if name in family), (name,))


def with_both_ids(properties: Mapping[str, str]) -> dict[str, str]:
    """node.id and broker.id name the same thing; either gives both."""
    completed = dict(properties)
    if "node.id" in completed:
        completed.setdefault("broker.id", completed["node.id"])
    elif "broker.id" in completed:
        completed["node.id"] = completed["broker.id"]
    return completed


class BrokerSettings(
    NodeSettings,
    NetworkSettings,
    QuorumSettings,
    LogSettings,
    ReplicationSettings,
    GroupSettings,
    ShareSettings,
    TransactionSettings,
    SecuritySettings,
    SaslSettings,
    OperationsSettings,
    RemoteSettings,
    UndeclaredSettings,
    OttlaSettings,
):
    """The whole table; its bases are the groups of the docs page."""

    __slots__ = ()


class Endpoints(NamedTuple):
    """What the listener settings come to."""

    protocols: dict[str, str]
    """Listener name -> security protocol."""
    listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    """As given, or the listeners."""


class BrokerConfig(BrokerSettings):
    """The settings of one node."""

    __slots__ = (*slots_of(BrokerSettings), "_endpoints", "_topic_defaults", "layers", "properties")

    layers: Layers
    properties: Mapping[str, str]
    """Every text in force, by name: the file's under the dynamic ones, listener-prefixed and unknown names included."""
    _endpoints: Endpoints | None
    _topic_defaults: TopicConfig | None

    def __init__(
        self, *, layers: Layers = NO_LAYERS, properties: Mapping[str, str] | None = None, **values: Any
    ) -> None:
        super().__init__(**values)
        put = object.__setattr__
        put(self, "layers", layers)
        put(self, "properties", layers.static if properties is None else properties)
        put(self, "_endpoints", None)
        put(self, "_topic_defaults", None)

    @classmethod
    def from_layers(cls, layers: Layers) -> Self:
        """From texts that were checked before. A dynamic value that no longer parses is passed over, as in Kafka."""
        properties = effective_properties(layers)
        values: dict[str, Any] = {}
        for name, text in properties.items():
            setting = cls.TABLE.get(name)
            if setting is not None:
                values[setting.attribute] = parse(setting, text)
        return cls(layers=layers, properties=properties, **values)

    def with_dynamic(self, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """The same node after a dynamic change: `cluster` and `broker` are the full new layers."""
        return self.from_layers(Layers(self.layers.static, cluster, broker))

    def replace(self, **changes: Any) -> Self:
        return type(self)(layers=self.layers, properties=self.properties, **{**dict(self.items()), **changes})

    # -- roles ---------------------------------------------------------------------------------------------------------

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The static voters: id -> (host, port); empty when the quorum is changeable."""
        addresses: dict[int, tuple[str, int]] = {}
        for entry in self.controller_quorum_voters:
            node, _, address = entry.partition("@")
            address_parts = split_host_port(address)
            if address_parts is not None:
                addresses[int(node)] = address_parts
        return addresses

    # -- directories ---------------------------------------------------------------------------------------------------

    @property
    def data_dirs(self) -> tuple[str, ...]:
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @property
    def metadata_dir(self) -> str:
        return self.metadata_log_dir or self.data_dirs[0]

    # -- listeners -----------------------------------------------------------------------------------------------------

    @property
    def endpoints(self) -> Endpoints:
        """ListenerError when the listener settings do not fit together; `load` has checked them."""
        if self._endpoints is None:
            object.__setattr__(self, "_endpoints", self._parse_endpoints())
        return self._endpoints  # type: ignore[return-value]  # set above

    def _parse_endpoints(self) -> Endpoints:
        protocols = protocol_map(
            self.listener_security_protocol_map,
            explicit="listener.security.protocol.map" in self.properties,
            listeners=self.listeners,
            controller_names=self.controller_listener_names,
        )
        listeners = parse_endpoints("listeners", self.listeners, protocols, distinct_ports=True)
        if self.advertised_listeners is None:
            return Endpoints(protocols, listeners, listeners)
        advertised = parse_endpoints("advertised.listeners", self.advertised_listeners, protocols, distinct_ports=False)
        return Endpoints(protocols, listeners, advertised)

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.endpoints.listeners if e.listener_name in self.controller_listener_names)

    @property
    def advertised_broker_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.endpoints.advertised if e.listener_name not in self.controller_listener_names)

    @property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """For each controller listener its advertised endpoint, or where it listens."""
        endpoints = {e.listener_name: e for e in (*self.controller_listeners, *self.endpoints.advertised)}
        names = (name.upper() for name in self.controller_listener_names)
        return tuple(endpoints[name] for name in names if name in endpoints)

    @property
    def inter_broker_listener(self) -> str:
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    def for_listener(self, listener_name: str) -> Self:
        """These settings as the listener sees them: its `listener.name.L.` properties over the plain ones."""
        prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."
        changes: dict[str, Any] = {}
        for name, text in self.properties.items():
            setting = self.TABLE.get(name[len(prefix) :]) if name.startswith(prefix) else None
            if setting is not None:
                changes[setting.attribute] = setting.typed(parse(setting, text))
        return self.replace(**changes) if changes else self

    def mechanism_value(self, listener_name: str, mechanism: str, name: str) -> Any:
        """A setting as one SASL mechanism of a listener sees it."""
        setting = self.TABLE[name]
        text = self.properties.get(f"{LISTENER_PREFIX}{listener_name.lower()}.{mechanism.lower()}.{name}")
        return getattr(self.for_listener(listener_name), setting.attribute) if text is None else parse(setting, text)

    @property
    def encrypts_at_rest(self) -> bool:
        file, environment = self.ottla_encryption_master_key_file, self.ottla_encryption_master_key_env
        command, url = self.ottla_encryption_master_key_command, self.ottla_encryption_master_key_url
        return any((file, environment, command, url))

    @property
    def connection_limits(self) -> dict[str, int]:
        """Address -> most connections from it."""
        pairs = parse_map("max.connections.per.ip.overrides", self.max_connections_per_ip_overrides)
        return {host: int(limit) for host, limit in pairs.items()}

    # -- what topics inherit -------------------------------------------------------------------------------------------

    @property
    def topic_defaults(self) -> TopicConfig:
        """The settings of a topic without overrides."""
        if self._topic_defaults is None:
            values = {
                setting.attribute: setting.typed(value)
                for setting in TopicConfig.TABLE.values()
                if (value := self.inherited(setting)) is not None
            }
            object.__setattr__(self, "_topic_defaults", TopicConfig(**values))
        return self._topic_defaults  # type: ignore[return-value]  # set above

    def inherited(self, setting: Setting) -> Any:
        """What a topic or group setting falls back to, before its own default: None when no property gives it."""
        for synonym in setting.synonyms:
            value = getattr(self, synonym.name.replace(".", "_"))
            if value is not None:
                value = value * synonym.factor if synonym.factor != 1 else value
                return -1 if setting.name == "retention.ms" and value < 0 else value
        return None


def effective_properties(layers: Layers) -> dict[str, str]:
    """The texts in force. A dynamic value also takes its synonyms out of the weaker layers."""
    properties = dict(layers.static)
    for layer in (layers.cluster, layers.broker):
        for name, text in layer.items():
            setting = BrokerSettings.TABLE.get(listener_base(name) or name)
            if setting is not None and not _parses(setting, text):
                continue
            for synonym in broker_synonyms(name):
                if listener_base(name) is None:
                    properties.pop(synonym, None)
            properties[name] = text
    return properties


def _parses(setting: Setting, text: str) -> bool:
    try:
        parse(setting, text)
    except BadValue:
        return False
    return True
