import threading
from contextlib import contextmanager

import pytest
from billing_worker import BillingWorker
from confluent_kafka import KafkaException


@contextmanager
def running(worker):
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=[stop.is_set])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_orders_become_invoices(ottla_broker):
    orders, invoices = ottla_broker.topic("orders"), ottla_broker.topic("invoices")
    ottla_broker.produce(orders, {"id": 1, "pieces": 2, "price": 5}, {"id": 2, "pieces": 1, "price": 3})
    with running(BillingWorker(ottla_broker.bootstrap_servers, orders, invoices)):
        ottla_broker.wait_for_lag(f"billing-{orders}", 0, timeout_s=120)
    assert [record.value for record in ottla_broker.records(invoices)] == [
        {"order": 1, "total": 10},
        {"order": 2, "total": 3},
    ]


def test_a_failed_commit_repeats_the_order_under_the_same_key(ottla_broker):
    orders = ottla_broker.topic("orders")
    invoices = ottla_broker.topic("invoices", settings={"cleanup.policy": "compact"})
    ottla_broker.produce(orders, {"id": 1, "pieces": 2, "price": 5})
    servers = ottla_broker.bootstrap_servers
    with ottla_broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=1):
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            BillingWorker(servers, orders, invoices).run(until=lambda: False)
    with running(BillingWorker(servers, orders, invoices)):
        ottla_broker.wait_for_lag(f"billing-{orders}", 0, timeout_s=120)
    records = ottla_broker.records(invoices)
    assert len(records) == 2
    assert {record.key: record.value for record in records} == {"1": {"order": 1, "total": 10}}
