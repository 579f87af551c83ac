import asyncio

from faststream_invoices import create_app


def test_orders_become_invoices(ottla_broker):
    orders, invoices = ottla_broker.topic("orders"), ottla_broker.topic("invoices")
    ottla_broker.produce(orders, {"id": 1, "pieces": 2, "price": 5}, {"id": 2, "pieces": 0, "price": 5})
    ottla_broker.produce(orders, {"id": 3, "pieces": 1, "price": 4})

    async def run_until_all_is_read() -> None:
        app = create_app(ottla_broker.bootstrap_servers, orders, invoices)
        await app.start()
        await asyncio.to_thread(ottla_broker.wait_for_lag, f"invoices-{orders}", 0, timeout_s=120)
        await app.stop()

    asyncio.run(run_until_all_is_read())
    assert [record.value for record in ottla_broker.records(invoices)] == [
        {"order": 1, "total": 10},
        {"order": 3, "total": 4},
    ]
