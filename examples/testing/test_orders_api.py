import time

from fastapi.testclient import TestClient
from orders_api import create_app


def test_orders_are_written_and_added_up(ottla_broker, ottla_topic):
    with TestClient(create_app(ottla_broker.bootstrap_servers, ottla_topic)) as client:
        for amount in (3, 4):
            assert client.post("/orders", json={"page": "a", "amount": amount}).status_code == 202
        assert client.post("/orders", json={"page": "a"}).status_code == 422
        deadline = time.monotonic() + 60
        while client.get("/totals/a").json() != 7 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.get("/totals/a").json() == 7
    assert ottla_broker.snapshot(ottla_topic) == [
        {"key": "a", "value": {"page": "a", "amount": 3}},
        {"key": "a", "value": {"page": "a", "amount": 4}},
    ]
