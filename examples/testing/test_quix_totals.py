import pytest

pytest.importorskip("quixstreams")


def test_totals_of_pages(ottla_broker, tmp_path):
    from quix_totals import run

    orders, totals = ottla_broker.topic("orders"), ottla_broker.topic("totals")
    for page, amount in (("a", 3), ("b", 10), ("a", 4)):
        ottla_broker.produce(orders, {"page": page, "amount": amount}, key=page)
    run(ottla_broker.bootstrap_servers, orders, totals, state_dir=tmp_path, count=3)
    assert [record.value for record in ottla_broker.records(totals)] == [
        {"page": "a", "total": 3},
        {"page": "b", "total": 10},
        {"page": "a", "total": 7},
    ]
