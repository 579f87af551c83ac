"""The audit log: who logged in, who changed what, who was refused, and from where, as JSON records of `__ottla_audit`.

Events wait in a bounded queue (`ottla.audit.queue.max.events`) and are written in batches; what does not fit is counted
and the count is written when there is room again. A request never waits for its audit record. Values of settings, records
and credentials are never in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ottla.broker.audit.writer import TOPIC, AuditWriter, Event
from ottla.broker.authorization.rules import then
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.model.peer_text import cut
from ottla.protocol.generated.index import APIS
from ottla.protocol.primitives import Message, Struct

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.planes import NodePlane

__all__ = ["TOPIC", "AuditLog"]

FLUSH_S = 0.2
_RETRY_S = 1.0
_CHANGES = frozenset({19, 20, 21, 30, 31, 33, 34, 37, 38, 39, 40, 42, 43, 44, 45, 47, 49, 51, 57, 64, 80, 81})
"""APIs that change something beyond records and offsets: every call of them is written down."""
_DATA = frozenset({0, 1})
_REFUSALS = frozenset(
    {
        int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        int(ErrorCode.GROUP_AUTHORIZATION_FAILED),
        int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        int(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    }
)
_NAMES = ("name", "topic", "group_id", "resource_name", "transactional_id", "user", "principal", "entity_name")
_MAX_NAMES = 20


class AuditLog:
    def __init__(self, broker: Broker, max_events: int) -> None:
        self._broker = broker
        self._events: deque[Event] = deque()
        self._max_events = max_events
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None
        self._writer = AuditWriter(broker)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # What happens

    def login(self, principal: str, host: str, listener: str, *, allowed: bool, reason: str | None = None) -> None:
        event = {"event": "login", "principal": principal, "host": host, "listener": listener, "allowed": allowed}
        self._add(event if reason is None else {**event, "reason": reason})

    def around(
        self, handle: Handle[Message, Message], context: RequestContext[NodePlane], request: Message
    ) -> Answer[Message]:
        """The handler's answer, noted when it is there."""
        # A rule removes refused names from the request, so the names are collected before. Produce and fetch have many
        # names: theirs are collected from the response, and only when something was refused.
        names = _resources(request) if context.api_key not in _DATA else None

        def note(response: Message) -> Message:
            self._note(context, names, response)
            return response

        return then(handle(context, request), note)

    def _note(self, context: RequestContext[NodePlane], names: set[str] | None, response: Message) -> None:
        codes = sorted(_codes(response))
        refused = not _REFUSALS.isdisjoint(codes)
        if not refused and context.api_key not in _CHANGES:
            return
        self._add(
            {
                "event": "request",
                "api": APIS[context.api_key].name,
                "principal": context.principal,
                "host": context.client_host,
                "client_id": context.client_id,
                "listener": context.listener,
                "resources": sorted(_resources(response) if names is None else names)[:_MAX_NAMES],
                "allowed": not refused,
                "errors": [ErrorCode(code).name for code in codes if code],
            }
        )

    def _add(self, event: Event) -> None:
        if len(self._events) >= self._max_events:
            self._dropped += 1
            return
        event = {name: _cut(value) for name, value in event.items()}
        self._events.append({"timestamp_ms": self._broker.clock.time_ms(), "node": self._broker.node_id, **event})

    # Writing

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._note_dropped()
            while self._events:
                if not await self._writer.flush(self._events):
                    await asyncio.sleep(_RETRY_S)
                await asyncio.sleep(0)  # one batch in a turn of the loop

    def _note_dropped(self) -> None:
        """Add an event with the number of missing events, as soon as there is room."""
        missing = self._dropped + self._writer.unwritable
        if missing and len(self._events) < self._max_events:
            self._dropped = self._writer.unwritable = 0
            self._add({"event": "dropped", "count": missing})


def _cut(value: object) -> object:
    """The value with its texts cut."""
    if isinstance(value, str):
        return cut(value)
    return [_cut(item) for item in value] if isinstance(value, list) else value


def _codes(value: object, depth: int = 0) -> set[int]:
    """Every error code in a response."""
    codes: set[int] = set()
    if depth > 6:
        return codes
    if isinstance(value, list):
        for item in paced(value, 5):
            codes |= _codes(item, depth + 1)
    elif isinstance(value, Struct | Message):
        for name in type(value).__slots__:
            part = getattr(value, name)
            if name.endswith("error_code"):
                codes.add(part)
            elif isinstance(part, list | Struct):
                codes |= _codes(part, depth + 1)
    return codes


def _resources(value: object, depth: int = 0) -> set[str]:
    """The names in a request: topics, groups, principals; never values."""
    names: set[str] = set()
    if depth > 4:
        return names
    if isinstance(value, list):
        for item in value[:_MAX_NAMES]:
            names |= {item} if isinstance(item, str) else _resources(item, depth + 1)
    elif isinstance(value, Struct | Message):
        for name in type(value).__slots__:
            part = getattr(value, name)
            if name in _NAMES and isinstance(part, str):
                names.add(part)
            elif isinstance(part, list | Struct):
                names |= _resources(part, depth + 1)
    return names
