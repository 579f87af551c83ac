"""Topics that a pipeline needs: outputs and dead letters are made before the first record, inputs must be there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.connect.clients import librdkafka_settings
from ottla.model.user_error import UserError
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Step, input_topics
from ottla.pipelines.ports import Topic, View

_TIMEOUT_S = 30.0


def output_topics(steps: Iterable[Step]) -> list[Topic]:
    topics = []
    for step in steps:
        for port in step.writes.values():
            if isinstance(port, Topic):
                topics.append(port)
            elif isinstance(port, View):
                topics.append(port.topic)
        letters = [port.dead_letter for port in input_topics(step)] + [step.quarantine]
        topics += [Topic(name=name) for name in letters if name]
    return topics


def existing_topics(settings: RunSettings, steps: list[Step]) -> set[str]:
    """The topics of the cluster. Raises UserError for the input topics that are missing, a line each."""
    from confluent_kafka import KafkaException

    try:
        given_s = int(settings.client.get("default.api.timeout.ms", _TIMEOUT_S * 1000)) / 1000
        there = set(_admin(settings).list_topics(timeout=min(given_s, _TIMEOUT_S)).topics)
    except KafkaException as problem:
        raise UserError(f"{settings.bootstrap_servers} does not answer: {problem.args[0].str()}") from problem
    present = there | {port.name for port in output_topics(steps)}
    missing = [
        f"step {step.name} reads the topic {port.name!r}, which does not exist: create it first"
        for step in steps
        for port in input_topics(step)
        if port.name not in present
    ]
    if missing and not settings.path:
        raise UserError("\n       ".join(missing))
    return there


def create_outputs(settings: RunSettings, steps: list[Step], there: set[str]) -> None:
    """Creates the output topics that are missing."""
    missing = {port.name: port for port in output_topics(steps) if port.name not in there}
    if not missing:
        return
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import KafkaError, NewTopic

    admin = _admin(settings)
    for name, port in missing.items():
        config = {"cleanup.policy": "compact"} if port.compacted else {}
        try:
            admin.create_topics([NewTopic(name, port.partitions or -1, -1, config=config)])[name].result(_TIMEOUT_S)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UserError(f"the topic {name} cannot be created: {problem.args[0].str()}") from problem


def _admin(settings: RunSettings) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient(librdkafka_settings({"bootstrap.servers": settings.bootstrap_servers, **settings.client}))
