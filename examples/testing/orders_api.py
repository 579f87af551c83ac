"""A FastAPI service: POST /orders writes an event, and a consumer in the same process adds up the totals of pages."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from fastapi import FastAPI
from pydantic import BaseModel


class Order(BaseModel):
    page: str
    amount: int


def create_app(servers: str, topic: str) -> FastAPI:
    totals: Counter[str] = Counter()

    async def add_up() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            async for record in consumer:
                order = json.loads(record.value)
                totals[order["page"]] += order["amount"]
        finally:
            await consumer.stop()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.producer = AIOKafkaProducer(bootstrap_servers=servers)
        await app.state.producer.start()
        reader = asyncio.create_task(add_up())
        yield
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader
        await app.state.producer.stop()

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=202)
    async def order(order: Order) -> dict[str, int]:
        place = await app.state.producer.send_and_wait(topic, order.model_dump_json().encode(), order.page.encode())
        return {"offset": place.offset}

    @app.get("/totals/{page}")
    async def total(page: str) -> int:
        return totals[page]

    return app
