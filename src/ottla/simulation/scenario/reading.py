"""From the text of a scenario to its values, or to one ScenarioError. Every key is checked; nothing is guessed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.load import load, unknown_lines
from ottla.env.config.overrides import validate_topic_overrides
from ottla.env.config.problems import ConfigError
from ottla.env.config.topic import TopicConfig
from ottla.model.errors import KafkaError
from ottla.simulation.scenario import plan
from ottla.simulation.scenario.checks import (
    check_assignment,
    check_fault,
    check_names,
    check_target,
    flat,
    setting,
)
from ottla.simulation.scenario.keys import SECTIONS
from ottla.simulation.scenario.nodes import DECIDED, node_properties
from ottla.simulation.scenario.places import Lines, ScenarioError, SectionPlace, nearest, shown
from ottla.simulation.scenario.values import time_text

MAX_FILE_BYTES = 1_000_000
MANY = ("topic", "producer", "consumer", "fault")
MIN_OF_IDEMPOTENCE = 5
"""The most batches under way of an idempotent producer, as in Kafka."""


def parse_scenario(content: bytes, file: str) -> plan.Scenario:
    """The scenario of a file with this content."""
    if len(content) > MAX_FILE_BYTES:
        raise ScenarioError(f"{file}: {len(content):,} bytes; a scenario has at most {MAX_FILE_BYTES:,} bytes")
    try:
        text = content.decode("utf-8")
        tree = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file}: not valid TOML: {error}; see https://toml.io") from error
    except RecursionError as error:
        raise ScenarioError(f"{file}: values are nested too deeply; a scenario has flat sections") from error
    return _Reading(Lines(file).scan(text), tree).scenario()


class _Reading:
    def __init__(self, lines: Lines, tree: dict[str, Any]) -> None:
        self._lines = lines
        self._tree = tree

    def scenario(self) -> plan.Scenario:
        top = SectionPlace(self._lines)
        for section, content in self._tree.items():
            if section not in SECTIONS:
                raise top.unknown(section, "section", SECTIONS, f"sections are {', '.join(SECTIONS)}")
            self._check_shape(section, content)
        run = plan.RunPlan(**self._single("run"))
        cluster = plan.ClusterPlan(**self._single("cluster"))
        self._check_cluster(cluster)
        topics = tuple(self._topic(place, content, cluster) for place, content in self._all("topic"))
        if not topics:
            raise top.error('no topic; add a section [[topic]] with name = "orders"')
        self._check_topics(topics)
        by_name = {topic.name: topic for topic in topics}
        scenario = plan.Scenario(
            run=run,
            cluster=cluster,
            topics=topics,
            producers=self._producers(by_name),
            consumers=self._consumers(by_name),
            faults=self._faults(run, cluster, by_name),
        )
        if not scenario.producers:
            raise top.error(f'no producer; add a section [[producer]] with topic = "{topics[0].name}"')
        return scenario

    def _check_shape(self, section: str, content: object) -> None:
        place = SectionPlace(self._lines, section, many=section in MANY)
        if section in MANY and not (isinstance(content, list) and all(isinstance(part, dict) for part in content)):
            raise place.error(f"write the header as [[{section}]], with two brackets")
        if section not in MANY and not isinstance(content, dict):
            raise place.error(f"write the header as [{section}], with one bracket")

    def _all(self, section: str) -> list[tuple[SectionPlace, dict[str, Any]]]:
        contents: Sequence[dict[str, Any]] = self._tree.get(section, [])
        return [(SectionPlace(self._lines, section, n, many=True), part) for n, part in enumerate(contents, 1)]

    def _single(self, section: str) -> dict[str, Any]:
        return self._fields(SectionPlace(self._lines, section), self._tree.get(section, {}), section)

    def _fields(self, place: SectionPlace, content: Mapping[str, Any], section: str) -> dict[str, Any]:
        """The checked values by the names of fields. Sections with settings of Kafka collect these settings."""
        keys = {key.name: key for key in SECTIONS[section]}
        fields: dict[str, Any] = {}
        settings: dict[str, str] = {}
        for name, value in flat(content):
            key = keys.get(name)
            if key is not None:
                fields[key.field] = key.read(place, name, value)
            elif section == "topic":
                settings[name] = setting(place, name, value, keys, TopicConfig.TABLE)
            elif section == "cluster":
                settings[name] = setting(place, name, value, keys, BrokerConfig.TABLE)
            else:
                raise place.unknown(name, "key", keys, f"keys are {', '.join(keys)}")
        missing = [key.name for key in keys.values() if key.required and key.field not in fields]
        if missing:
            raise place.error(f"{missing[0]} is missing; {keys[missing[0]].doc} Accepted: {keys[missing[0]].accepts}")
        if settings:
            fields["settings" if section == "topic" else "properties"] = settings
        return fields

    # ------------------------------------------------------------------------------------------------------ the cluster

    def _check_cluster(self, cluster: plan.ClusterPlan) -> None:
        place = SectionPlace(self._lines, "cluster")
        for name in cluster.properties:
            if name in DECIDED:
                raise place.error("the scenario decides this property; remove the line", name)
            if problems := unknown_lines({name: ""}):
                raise place.error(problems[0].partition(": ")[2], name)
        try:
            load(node_properties(cluster, 1))
        except ConfigError as error:
            problem = str(error)
            name = next((name for name in cluster.properties if name in problem), "")
            raise place.error(problem.replace("\n", " "), name) from error

    def _topic(self, place: SectionPlace, content: dict[str, Any], cluster: plan.ClusterPlan) -> plan.TopicPlan:
        fields = self._fields(place, content, "topic")
        replicas = fields.pop("replicas", min(3, cluster.brokers))
        if isinstance(replicas, tuple):
            fields["assignment"] = replicas
            fields.setdefault("partitions", len(replicas))
            check_assignment(place, replicas, fields["partitions"], cluster)
            replicas = len(replicas[0])
        elif not 1 <= replicas <= cluster.brokers:
            raise place.error(
                f"{replicas} replicas do not fit on {cluster.brokers} brokers; write a number from 1 to {cluster.brokers}",
                "replicas",
            )
        try:
            validate_topic_overrides(fields.get("settings", {}), load(node_properties(cluster, 1)))
        except KafkaError as error:
            name = next((name for name in fields["settings"] if name in str(error)), "")
            raise place.error(str(error), name) from error
        return plan.TopicPlan(**fields, replicas=replicas)

    def _check_topics(self, topics: Sequence[plan.TopicPlan]) -> None:
        if len(topics) > plan.MAX_TOPICS:
            raise SectionPlace(self._lines).error(f"{len(topics)} topics; a scenario has at most {plan.MAX_TOPICS}")
        check_names([place for place, _ in self._all("topic")], [topic.name for topic in topics])
        partitions = sum(topic.partitions for topic in topics)
        if partitions > plan.MAX_PARTITIONS:
            raise SectionPlace(self._lines).error(
                f"{partitions} partitions; a scenario has at most {plan.MAX_PARTITIONS}"
            )

    # ------------------------------------------------------------------------------------------------------- the clients

    def _clients(self, section: str, topics: Mapping[str, plan.TopicPlan]) -> list[tuple[SectionPlace, dict[str, Any]]]:
        clients = []
        for number, (place, content) in enumerate(self._all(section), 1):
            fields = {"name": f"{section}-{number}"} | self._fields(place, content, section)
            if fields["topic"] not in topics:
                advice = nearest(fields["topic"], topics) or f"topics of this scenario are {', '.join(topics)}"
                raise place.error(f"unknown topic {shown(fields['topic'])}; {advice}", "topic")
            clients.append((place, fields))
        if len(clients) > plan.MAX_CLIENTS:
            raise SectionPlace(self._lines).error(
                f"{len(clients)} {section}s; a scenario has at most {plan.MAX_CLIENTS}"
            )
        check_names([place for place, _ in clients], [fields["name"] for _, fields in clients])
        return clients

    def _producers(self, topics: Mapping[str, plan.TopicPlan]) -> tuple[plan.ProducerPlan, ...]:
        producers = []
        for place, fields in self._clients("producer", topics):
            wants_all = fields.get("acks", plan.ACKS_ALL) == plan.ACKS_ALL
            idempotent = fields.setdefault(
                "idempotence", wants_all and fields.get("in_flight", 1) <= MIN_OF_IDEMPOTENCE
            )
            if idempotent and not wants_all:
                raise place.error('idempotence needs acks = "all"; change acks or write idempotence = false', "acks")
            if idempotent and fields.get("retries") == 0:
                raise place.error("idempotence needs retries; remove retries or write idempotence = false", "retries")
            if idempotent and fields.get("in_flight", 1) > MIN_OF_IDEMPOTENCE:
                raise place.error(
                    f"idempotence allows at most {MIN_OF_IDEMPOTENCE} batches under way; write in_flight = 5",
                    "in_flight",
                )
            producers.append(plan.ProducerPlan(**fields))
        records = sum(producer.count for producer in producers)
        if records > plan.MAX_RECORDS:
            raise SectionPlace(self._lines).error(
                f"all producers together send {records:,} records; a scenario has at most {plan.MAX_RECORDS:,}"
            )
        return tuple(producers)

    def _consumers(self, topics: Mapping[str, plan.TopicPlan]) -> tuple[plan.ConsumerPlan, ...]:
        consumers = []
        for place, fields in self._clients("consumer", topics):
            for key, name in (("members", "members"), ("commit_ms", "commit_interval")):
                if key in fields and "group" not in fields:
                    raise place.error(f"{name} has an effect only in a group; add group or remove {name}", name)
            consumers.append(plan.ConsumerPlan(**fields))
        return tuple(consumers)

    # -------------------------------------------------------------------------------------------------------- the faults

    def _faults(
        self, run: plan.RunPlan, cluster: plan.ClusterPlan, topics: Mapping[str, plan.TopicPlan]
    ) -> tuple[plan.FaultPlan, ...]:
        faults: list[plan.FaultPlan] = []
        names: dict[str, float] = {}
        sections = self._all("fault")
        if len(sections) > plan.MAX_FAULTS:
            raise SectionPlace(self._lines).error(f"{len(sections)} faults; a scenario has at most {plan.MAX_FAULTS}")
        for place, content in sections:
            fault = plan.FaultPlan(**self._fields(place, content, "fault"))
            if fault.at_ms > run.duration_ms:
                raise place.error(
                    f"{time_text(fault.at_ms)} is after the end of the run ({time_text(run.duration_ms)}); "
                    "raise duration in [run]", "at",
                )  # fmt: skip
            check_fault(place, content, fault)
            for key, text in (("target", fault.target), ("peer", fault.peer)):
                if text:
                    check_target(place, key, text, fault, cluster, topics, names)
            if fault.name in names:
                raise place.error(f"the name {shown(fault.name)} is used twice; choose a different name", "name")
            if fault.name:
                names[fault.name] = fault.at_ms
            faults.append(fault)
        return tuple(sorted(faults, key=lambda fault: fault.at_ms))
