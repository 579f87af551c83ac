"""A Django application in one file: POST /orders/ writes an event, and answers 503 when the broker does not accept it."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from confluent_kafka import Producer
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST

if not settings.configured:
    settings.configure(
        SECRET_KEY="of an example",
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["testserver", "localhost"],
        KAFKA_SERVERS=os.environ.get("KAFKA_SERVERS", "localhost:9092"),
        ORDERS_TOPIC="orders",
    )


@cache
def producer(servers: str) -> Producer:
    """One for the process: a producer has threads and connections."""
    return Producer({"bootstrap.servers": servers, "message.timeout.ms": 10_000})


def write_event(event: dict[str, Any]) -> str | None:
    """The reason why the broker did not accept the event, or None."""
    errors: list[Any] = []
    client = producer(settings.KAFKA_SERVERS)
    client.produce(settings.ORDERS_TOPIC, json.dumps(event), on_delivery=lambda error, _message: errors.append(error))
    client.flush()
    return errors[0].str() if errors[0] is not None else None


@require_POST
def order(request: HttpRequest) -> JsonResponse:
    reason = write_event(json.loads(request.body))
    return JsonResponse({"error": reason}, status=503) if reason else JsonResponse({}, status=201)


urlpatterns = [path("orders/", order)]
