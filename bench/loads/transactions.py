"""A small transactional load with acks=all: how many transactions a second, and what each costs the broker.

confluent-kafka speaks transactions v1 (the producer adds its partitions), the Java producer v2 (the broker does). A
transaction is ten records of 100 B to two partitions; the Java rows keep one rate, so that both servers do the same work.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from bench.bed import Bed, MismatchError, cpu_of
from bench.loads import Case, Measured
from bench.measure import Quantity, Target
from bench.plan import Sizes
from bench.servers import Server

NAME = "transactions"
TRANSACTIONS_PER_S = Quantity("transactions", "/s", "higher")
CPU_PER_THOUSAND = Quantity("CPU per 1,000", "s", "lower", Target("ratio", "<=", 1.0))
CPU_SHARE = Quantity("CPU", "ms/s", "lower", Target("ratio", "<=", 1.0))
_RECORDS, _BYTES, _PARTITIONS = 10, 100, 2
_JAVA_RECORDS_PER_S = 1000
_JAVA_TRANSACTION_MS = 10


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(
            load=NAME,
            label="confluent-kafka, one after another",
            quantities=(TRANSACTIONS_PER_S, CPU_PER_THOUSAND),
            run=partial(_confluent, sizes),
        ),
        Case(
            load=NAME,
            label=f"Java, every {_JAVA_TRANSACTION_MS} ms, {_JAVA_RECORDS_PER_S:,} records/s",
            quantities=(CPU_SHARE,),
            run=partial(_java, sizes),
        ),
    ]


def _confluent(sizes: Sizes, bed: Bed, role: str) -> Measured:
    import confluent_kafka

    server = bed.shared(role)
    with bed.topic(server, _PARTITIONS) as topic:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "transactional.id": bed.name("txn"), "linger.ms": 0}
        )
        producer.init_transactions(sizes.timeout_s)
        warm_up = sizes.transactions if bed.first_time(role, NAME) else 20
        _commit(producer, topic, warm_up, sizes.timeout_s)
        bed.settle()
        with cpu_of(server) as cpu:
            seconds = _commit(producer, topic, sizes.transactions, sizes.timeout_s)
    return {
        TRANSACTIONS_PER_S: sizes.transactions / seconds,
        CPU_PER_THOUSAND: cpu.seconds / sizes.transactions * 1000,
    }


def _commit(client: Any, topic: str, count: int, timeout_s: float) -> float:
    began = time.perf_counter()
    for number in range(count):
        if time.perf_counter() - began > timeout_s:
            raise MismatchError(f"{number} transactions of {count} in {timeout_s:g} s")
        client.begin_transaction()
        for record in range(_RECORDS):
            client.produce(topic, bytes(_BYTES), partition=record % _PARTITIONS)
        client.commit_transaction(timeout_s)
    return time.perf_counter() - began


def _java(sizes: Sizes, bed: Bed, role: str) -> Measured:
    server = bed.shared(role)
    with bed.topic(server, _PARTITIONS) as topic:
        if bed.first_time(role, f"{NAME} Java"):
            _perf(bed, server, topic, _JAVA_RECORDS_PER_S * 2)
        bed.settle()
        count = int(_JAVA_RECORDS_PER_S * max(sizes.seconds * 2, 1))
        with cpu_of(server) as cpu:
            _perf(bed, server, topic, count)
    return {CPU_SHARE: cpu.seconds * 1000 / (count / _JAVA_RECORDS_PER_S)}


def _perf(bed: Bed, server: Server, topic: str, count: int) -> None:
    printed = bed.java.tool(
        "ProducerPerformance",
        *("--bootstrap-server", server.bootstrap, "--topic", topic, "--num-records", count),
        *("--throughput", _JAVA_RECORDS_PER_S, "--record-size", _BYTES),
        *("--transactional-id", bed.name("perf"), "--transaction-duration-ms", _JAVA_TRANSACTION_MS),
        *("--command-property", "acks=all", "linger.ms=0"),
        timeout_s=bed.sizes.timeout_s,
    )
    if f"{count} records sent" not in printed:
        raise MismatchError(f"ProducerPerformance did not send {count} records: {printed[-300:].strip()}")
