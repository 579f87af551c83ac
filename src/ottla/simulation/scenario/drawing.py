"""A scenario drawn from a seed: a small cluster, its clients and a few faults that end by themselves."""

from __future__ import annotations

import random

from ottla.simulation.scenario.plan import (
    ACKS_ALL,
    ClusterPlan,
    ConsumerPlan,
    FaultPlan,
    ProducerPlan,
    RunPlan,
    Scenario,
    TopicPlan,
)

DURATION_MS = 30_000.0
_FIRST_FAULT_MS, _LAST_FAULT_MS = 3_000.0, 22_000.0
_NAMES = ("orders", "payments")
_DOWN = ("kill", "kill", "stop", "power_cut")
_OTHERS = ("pause", "isolate", "slow_network", "slow_disk", "full_disk")


def draw_scenario(seed: int) -> Scenario:
    dice = random.Random(seed)  # noqa: S311 - a simulation must be repeatable
    brokers = dice.choice([3, 3, 4, 5])
    topics = tuple(_topic(dice, name, brokers) for name in _NAMES[: dice.choice([1, 1, 2])])
    return Scenario(
        run=RunPlan(seed=seed, duration_ms=DURATION_MS),
        cluster=ClusterPlan(
            brokers=brokers,
            controllers=dice.choice([1, 1, 3]),
            delay_ms=dice.choice([0.5, 2.0, 5.0]),
            properties={"broker.session.timeout.ms": dice.choice(["3000", "9000"])},
        ),
        topics=topics,
        producers=tuple(_producer(dice, number, topic) for number, topic in enumerate(topics, 1)),
        consumers=(_consumer(dice, topics[0]),),
        faults=tuple(sorted(_faults(dice, topics), key=lambda fault: fault.at_ms)),
    )


def _topic(dice: random.Random, name: str, brokers: int) -> TopicPlan:
    settings = {
        "min.insync.replicas": dice.choice(["1", "2"]),
        "unclean.leader.election.enable": dice.choice(["true", "false", "false"]),
    }
    return TopicPlan(
        name=name, partitions=dice.randint(1, 3), replicas=min(brokers, dice.choice([2, 3, 3])), settings=settings
    )


def _producer(dice: random.Random, number: int, topic: TopicPlan) -> ProducerPlan:
    acks = dice.choice([1, ACKS_ALL, ACKS_ALL])
    return ProducerPlan(
        name=f"producer-{number}",
        topic=topic.name,
        acks=acks,
        idempotence=acks == ACKS_ALL and dice.random() < 0.6,
        rate=dice.choice([50, 100]),
        count=1_500,
        keys=dice.choice([0, 10]),
        request_timeout_ms=dice.choice([2_000.0, 10_000.0]),
        delivery_timeout_ms=60_000.0,
    )


def _consumer(dice: random.Random, topic: TopicPlan) -> ConsumerPlan:
    if dice.random() < 0.5:
        return ConsumerPlan(name="consumer-1", topic=topic.name)
    return ConsumerPlan(name="consumer-1", topic=topic.name, group="readers", commit_ms=2_000.0)


def _faults(dice: random.Random, topics: tuple[TopicPlan, ...]) -> list[FaultPlan]:
    faults = []
    for _ in range(dice.randint(2, 6)):
        topic = dice.choice(topics)
        role = dice.choice(["leader", "leader", "follower", "followers"])
        kind = dice.choice([*_DOWN, *_OTHERS])
        faults.append(
            FaultPlan(
                kind=kind,
                at_ms=float(round(dice.uniform(_FIRST_FAULT_MS, _LAST_FAULT_MS), -2)),
                target=f"{role} of {topic.name}-{dice.randrange(topic.partitions)}",
                for_ms=float(dice.choice([500, 2_000, 5_000, 12_000])),
                delay_ms=dice.choice([50.0, 400.0]) if kind.startswith("slow") else 0.0,
                clients=kind != "isolate" or dice.random() < 0.5,
            )
        )
    return faults
