"""From a scenario to the text of its file, by the table of keys. What the reader reads back is the same scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.simulation.scenario import plan
from ottla.simulation.scenario.keys import SECTIONS
from ottla.simulation.scenario.values import time_text

if TYPE_CHECKING:
    from ottla.simulation.scenario.plan import Scenario

_ALWAYS = {
    "run": ("seed", "duration"),
    "cluster": ("brokers", "controllers"),
    "topic": ("partitions", "replicas"),
    "producer": ("name", "topic", "acks", "idempotence", "rate", "count"),
    "consumer": ("name", "topic"),
    "fault": ("at", "kind"),
}
"""Keys that are written although they have their defaults, because people will change them first."""
_DEFAULTS = {
    "run": plan.RunPlan(),
    "cluster": plan.ClusterPlan(),
    "topic": plan.TopicPlan(name=""),
    "producer": plan.ProducerPlan(name="", topic=""),
    "consumer": plan.ConsumerPlan(name="", topic=""),
    "fault": plan.FaultPlan(kind="", at_ms=0.0),
}


def scenario_text(scenario: Scenario, title: str) -> str:
    parts = [
        f"# {title}\n",
        _section("run", scenario.run, {}),
        _section("cluster", scenario.cluster, scenario.cluster.properties),
    ]
    parts += [_section("topic", topic, topic.settings) for topic in scenario.topics]
    parts += [_section("producer", producer, {}) for producer in scenario.producers]
    parts += [_section("consumer", consumer, {}) for consumer in scenario.consumers]
    parts += [_section("fault", fault, {}) for fault in scenario.faults]
    return "\n".join(parts)


def _section(name: str, values: Any, settings: Mapping[str, str]) -> str:
    header = f"[{name}]" if name in {"run", "cluster"} else f"[[{name}]]"
    lines = [header]
    for key in SECTIONS[name]:
        value = getattr(values, key.field)
        if name == "topic" and key.name == "replicas" and values.assignment:
            value = [list(row) for row in values.assignment]
        if key.name in _ALWAYS[name] or value != getattr(_DEFAULTS[name], key.field):
            lines.append(f"{key.name} = {_value(key.name, key.field, value)}")
    lines += [f"{setting} = {_text(value)}" for setting, value in settings.items()]
    return "\n".join(lines) + "\n"


def _value(key: str, field: str, value: Any) -> str:
    if field.endswith("_ms"):
        sign = ("-" if value < 0 else "+") if key == "by" else ""
        return _text(f"{sign}{time_text(abs(value))}")
    if key == "acks" and value == plan.ACKS_ALL:
        return '"all"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | list):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_text(entry) for entry in value)}]"
    return _text(value)


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
