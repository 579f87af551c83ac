import asyncio

from relay import relay


def test_a_lost_acknowledgement_repeats_no_record(ottla_broker):
    source, target = ottla_broker.topic("source"), ottla_broker.topic("target")
    ottla_broker.produce(source, "a", "b", "c", key="k")
    with ottla_broker.faults.lose_acks(1) as fault:
        asyncio.run(relay(ottla_broker.bootstrap_servers, source, target, 3))
    assert fault.count == 1
    assert [(record.key, record.value) for record in ottla_broker.records(target)] == [
        ("k", "A"),
        ("k", "B"),
        ("k", "C"),
    ]
    ottla_broker.wait_for_lag(f"relay-{source}", 0, timeout_s=120)
