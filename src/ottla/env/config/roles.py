"""Checks between the roles of a node and its listeners, in Kafka's words. Called with endpoints that parse."""

from __future__ import annotations

from collections.abc import Iterator

from .broker.config import BrokerConfig
from .problems import Problem

_CONTROLLERS = "controller.listener.names"
_NO_MAPPING = (
    "not found in listener.security.protocol.map  (an explicit security mapping for each controller listener is "
    "required if listener.security.protocol.map is non-empty, or if there are security protocols other than PLAINTEXT "
    "in use)"
)


def listener_problems(config: BrokerConfig) -> Iterator[Problem]:
    if not config.is_controller:
        yield from _broker_only(config)
    elif not config.is_broker:
        yield from _controller_only(config)
    if config.is_controller:
        yield from _controller(config)
    if config.is_broker:
        yield from _broker(config)
        yield from _inter_broker(config)
    yield from _early_start(config)


def _broker_only(config: BrokerConfig) -> Iterator[Problem]:
    if config.controller_listeners:
        yield Problem(
            _CONTROLLERS,
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when "
            "running KRaft with just the broker role",
            requirement=True,
        )
    for name in config.controller_listener_names:
        if name.upper() not in config.endpoints.protocols:
            yield Problem(
                _CONTROLLERS, f"Controller listener with name {name.upper()} defined in {_CONTROLLERS} {_NO_MAPPING}"
            )


def _controller_only(config: BrokerConfig) -> Iterator[Problem]:
    if len(config.advertised_controller_listeners) != len(config.endpoints.listeners):
        yield Problem(
            "listeners",
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller",
            requirement=True,
        )
    if config.inter_broker_listener_name and config.inter_broker_listener in config.controller_listener_names:
        yield Problem(
            "inter.broker.listener.name",
            "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration "
            "value when process.roles=controller",
            requirement=True,
        )


def _controller(config: BrokerConfig) -> Iterator[Problem]:
    names = {endpoint.listener_name for endpoint in config.endpoints.listeners}
    if not config.advertised_controller_listeners:
        yield Problem(
            _CONTROLLERS,
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when "
            "running the KRaft controller role",
            requirement=True,
        )
    elif not names.issuperset(config.controller_listener_names):
        yield Problem(
            _CONTROLLERS,
            "controller.listener.names must only contain values appearing in the 'listeners' configuration when "
            "running the KRaft controller role",
            requirement=True,
        )


def _broker(config: BrokerConfig) -> Iterator[Problem]:
    advertised = [endpoint.listener_name for endpoint in config.advertised_broker_listeners]
    listeners = [endpoint.listener_name for endpoint in config.endpoints.listeners]
    if not advertised:
        yield Problem(
            "advertised.listeners",
            "There must be at least one broker advertised listener. Perhaps all listeners appear in "
            "controller.listener.names?",
            requirement=True,
        )
        return
    if config.inter_broker_listener not in advertised:
        yield Problem(
            "inter.broker.listener.name",
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options "
            f"based on currently configured listeners are {','.join(advertised)}",
            requirement=True,
        )
    elif not set(advertised).issubset(listeners):
        yield Problem(
            "advertised.listeners",
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
            f"{','.join(advertised)}. The valid options based on the current configuration are {','.join(listeners)}",
            requirement=True,
        )
    if any(endpoint.host == "0.0.0.0" for endpoint in config.advertised_broker_listeners):  # noqa: S104 - refused
        yield Problem(
            "advertised.listeners",
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
            requirement=True,
        )


def _inter_broker(config: BrokerConfig) -> Iterator[Problem]:
    name = config.inter_broker_listener
    if config.inter_broker_listener_name is not None:
        if "security.inter.broker.protocol" in config.properties:
            yield Problem(
                "inter.broker.listener.name",
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
            )
        if name not in config.endpoints.protocols:
            yield Problem(
                "inter.broker.listener.name",
                f"Listener with name {name} defined in inter.broker.listener.name not found in "
                "listener.security.protocol.map.",
            )
    protocol = config.endpoints.protocols.get(name, config.security_inter_broker_protocol)
    mechanisms = config.for_listener(name).sasl_enabled_mechanisms
    if protocol.startswith("SASL_") and config.sasl_mechanism_inter_broker_protocol not in mechanisms:
        yield Problem(
            "sasl.mechanism.inter.broker.protocol",
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication",
            requirement=True,
        )


def _early_start(config: BrokerConfig) -> Iterator[Problem]:
    listener_names = {
        *(endpoint.listener_name for endpoint in config.endpoints.listeners),
        *config.controller_listener_names,
    }
    for name in config.early_start_listeners or ():
        if name.upper() not in listener_names:
            yield Problem(
                "early.start.listeners",
                f"early.start.listeners contains listener {name.upper()}, but this is not contained in listeners or "
                "controller.listener.names",
            )
