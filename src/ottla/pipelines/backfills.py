"""The version of a pipeline that a backfill runs: the same steps, with outputs beside the old outputs."""

from __future__ import annotations

from dataclasses import replace

from ottla.pipelines.pipeline import Pipeline, input_topics
from ottla.pipelines.ports import Port, Topic, TopicTable, View


def backfilled(pipeline: Pipeline, suffix: str) -> Pipeline:
    """The same steps with outputs renamed, dead letters too; steps that read those outputs read the new ones."""
    names: dict[str, Port] = {}
    for step in pipeline.steps:
        for port in step.writes.values():
            names[port.node] = new = port.renamed(suffix)
            if isinstance(port, View) and isinstance(new, View):  # its topic and its table can be read by themselves
                names |= {port.topic.node: new.topic, port.delta.node: new.delta}
        letters = [port.dead_letter for port in input_topics(step)] + [step.quarantine]
        for name in (name for name in letters if name):
            names.setdefault(f"topic:{name}", Topic(name=name + suffix))
    steps = []
    for step in pipeline.steps:
        reads = {name: _read_from(port, names.get(port.node), suffix) for name, port in step.reads.items()}
        writes = {branch: names[port.node] for branch, port in step.writes.items()}
        quarantine = step.quarantine + suffix if step.quarantine else None
        steps.append(replace(step, reads=reads, writes=writes, quarantine=quarantine))
    return Pipeline(pipeline.name + suffix, steps)


def _read_from(port: Port, new: Port | None, suffix: str) -> Port:
    if isinstance(port, TopicTable):
        topic = _read_from(port.topic, new, suffix)
        return replace(port, topic=topic) if isinstance(topic, Topic) else port
    if isinstance(port, Topic):
        letters = port.dead_letter + suffix if port.dead_letter else None
        return replace(port, dead_letter=letters, name=new.name if isinstance(new, Topic) else port.name)
    return port if new is None else new
