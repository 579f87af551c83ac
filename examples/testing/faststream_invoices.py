"""FastStream: validated orders in, invoices out."""

from __future__ import annotations

from faststream import FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel, PositiveInt


class Order(BaseModel):
    id: int
    pieces: PositiveInt
    price: int


class Invoice(BaseModel):
    order: int
    total: int


def create_app(servers: str, orders: str, invoices: str) -> FastStream:
    broker = KafkaBroker(servers)

    @broker.subscriber(orders, group_id=f"invoices-{orders}", auto_offset_reset="earliest")
    @broker.publisher(invoices)
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.id, total=order.pieces * order.price)

    return FastStream(broker)
