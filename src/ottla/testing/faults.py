"""Faults that a test asks for: answers that are lost, late or errors, nodes that stop, disks that are full.

All hooks sit at seams of the node (`ottla.server.machine.NodeMachine`) and are composed by the test kit alone: a node
outside of the test kit runs none of this code. Faults act on requests of clients, never on requests between nodes.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from ottla.broker.connection import CloseConnection
from ottla.broker.context import RequestContext
from ottla.broker.deferred import Answer, Resolution
from ottla.broker.dispatch import Dispatcher, Route
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.protocol.primitives import Message
from ottla.testing.error_answers import can_answer, error_answer, with_error

if TYPE_CHECKING:
    from ottla.broker.apis import ServedApi
    from ottla.broker.planes import NodePlane
    from ottla.broker.slices import Slices

KIT_CLIENT = "ottla-testing"
"""The client id of the test kit's own calls, on which no fault acts."""
_NODE_CLIENT = re.compile(r"broker-\d+(-.+)?")
"""The client ids of nodes, Ottla's and Apache Kafka's, when they send requests to brokers."""
Kind = Literal["delay", "error", "lose_acks"]


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """An injected fault. `count` is how often the fault has acted. Use it as a context manager, or call `remove`."""

    kind: Kind
    api: ApiKey
    times: int | None = None
    probability: float = 1.0
    delay_ms: float = 0.0
    code: ErrorCode = ErrorCode.NONE
    node: int | None = None
    count: int = 0
    _active: bool = field(default=True, repr=False)

    def remove(self) -> None:
        self._active = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def acts(self, api_key: int, node: int, chance: Callable[[], float]) -> bool:
        """Whether the fault acts on this request; then the fault is counted."""
        if not self._active or api_key != self.api or self.node not in {None, node}:
            return False
        if self.times is not None and self.count >= self.times:
            return False
        if self.probability < 1.0 and chance() >= self.probability:
            return False
        self.count += 1
        return True

    def __str__(self) -> str:
        detail = {"delay": f" {self.delay_ms:g} ms", "error": f" {self.code.name}"}.get(self.kind, "")
        return f"{self.kind} {self.api.name}{detail}: {self.count} times"


class RequestFaults:
    """The faults of requests, shared by the nodes of a broker. The choices of probabilities come from `seed`."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self._random = random.Random(self.seed)  # noqa: S311 - chances of a test, not a secret
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def delay(
        self,
        api: str | int,
        ms: float,
        *,
        times: int | None = None,
        probability: float = 1.0,
        node: int | None = None,
    ) -> Fault:
        """The node answers `ms` milliseconds late. The request itself is handled at once."""
        return self._add(
            Fault(kind="delay", api=_api(api), delay_ms=ms, times=times, probability=probability, node=node)
        )

    def error(
        self,
        api: str | int,
        code: str | int,
        times: int | None = None,
        *,
        probability: float = 1.0,
        node: int | None = None,
    ) -> Fault:
        """The node answers with an error and does nothing. `code` is a name such as "NOT_ENOUGH_REPLICAS", or a number."""
        api_key = _api(api)
        if not can_answer(api_key):
            raise ValueError(f"no error can be injected into {api_key.name}: its answers have no error code")
        return self._add(
            Fault(kind="error", api=api_key, code=_code(code), times=times, probability=probability, node=node)
        )

    def lose_acks(self, times: int | None = 1, *, probability: float = 1.0, node: int | None = None) -> Fault:
        """The node writes the records of a Produce request, and the connection breaks before the acknowledgement."""
        return self._add(Fault(kind="lose_acks", api=ApiKey.PRODUCE, times=times, probability=probability, node=node))

    def clear(self) -> None:
        """Remove all faults of requests."""
        with self._lock:
            for fault in self._faults:
                fault.remove()
            self._faults.clear()

    @property
    def by_chance(self) -> bool:
        """Whether a fault has a probability below 1."""
        return any(fault.probability < 1.0 for fault in self._faults)

    def report(self) -> str:
        """The seed and what the faults have done, for the message of a failed test."""
        acted = "; ".join(str(fault) for fault in self._faults)
        return f"faults of ottla.testing, Broker(seed={self.seed}): {acted}"

    def _add(self, fault: Fault) -> Fault:
        if not 0.0 <= fault.probability <= 1.0:
            raise ValueError(f"a probability lies between 0 and 1: {fault.probability}")
        with self._lock:
            self._faults.append(fault)
        return fault

    def next(self, api_key: int, node: int) -> list[Fault]:
        """The faults that act on this request."""
        if not self._faults:
            return []
        with self._lock:
            return [fault for fault in self._faults if fault.acts(api_key, node, self._random.random)]


class FaultyDispatcher(Dispatcher):
    """A dispatcher that first asks which faults act on a request."""

    def __init__(
        self, broker: NodePlane, served: dict[int, ServedApi], slices: Slices | None, faults: RequestFaults
    ) -> None:
        super().__init__(broker, served, slices)
        self._faults = faults

    def _handled(self, route: Route, context: RequestContext[NodePlane], request: Message, size: int) -> Answer[Any]:
        exempt = context.client_id == KIT_CLIENT or _of_a_node(context, request)
        faults = [] if exempt else self._faults.next(route.api_key, self.broker.node_id)
        if not faults:
            return super()._handled(route, context, request, size)
        errors = [fault for fault in faults if fault.kind == "error"]
        if errors and route.api_key != ApiKey.METADATA:
            answer = _refused(request, errors[0].code)
        else:
            answer = super()._handled(route, context, request, size)
            if errors and isinstance(answer, MetadataResponse):
                answer = with_error(answer, errors[0].code)
        if answer is None:  # acks=0: the client expects no answer
            return None
        lost = any(fault.kind == "lose_acks" for fault in faults)
        delay_ms = sum(fault.delay_ms for fault in faults)
        return late_or_lost(answer, delay_ms, lost=lost) if lost or delay_ms else answer


def _refused(request: Message, code: ErrorCode) -> Answer[Any]:
    silent = request.API_KEY == ApiKey.PRODUCE and getattr(request, "acks", 1) == 0
    return None if silent else error_answer(request, code)


async def late_or_lost(answer: Message | Awaitable[Resolution[Any]], delay_ms: float, *, lost: bool) -> Resolution[Any]:
    resolution = answer if isinstance(answer, Message) else await answer
    if delay_ms:
        whole_ms = math.ceil(delay_ms) + 1  # a timer of uvloop counts whole milliseconds and may ring early
        await asyncio.sleep(whole_ms / 1000)
    if lost:
        raise CloseConnection("ottla.testing lost the acknowledgement of this request")
    return resolution


def _of_a_node(context: RequestContext[NodePlane], request: Message) -> bool:
    """Whether the request comes from a node: on a controller's listener, by its client id, or a fetch of a follower."""
    if context.listener in context.broker.config.controller_listener_names:
        return True
    if _NODE_CLIENT.fullmatch(context.client_id or ""):
        return True
    replica: Any = getattr(request, "replica_state", None)
    return getattr(request, "replica_id", -1) >= 0 or (replica is not None and replica.replica_id >= 0)


def _api(api: str | int) -> ApiKey:
    """The names "Produce", "produce", "INIT_PRODUCER_ID", "InitProducerId" and the number are accepted."""
    if isinstance(api, int):
        return ApiKey(api)
    plain = api.replace("_", "").upper()
    for key in ApiKey:
        if key.name.replace("_", "") == plain:
            return key
    raise ValueError(f"there is no API {api!r}: use a name of Kafka's protocol such as 'Produce' or 'OffsetCommit'")


def _code(code: str | int) -> ErrorCode:
    try:
        return ErrorCode[code] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        raise ValueError(f"there is no error {code!r}: use a name of Kafka's such as 'NOT_ENOUGH_REPLICAS'") from None
