"""From a frame to a handler and back: versions, headers, errors. One place turns an exception into a response.

A handler is imported when its API is first called, so that a node starts without the modules that it does not need.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla.broker.acl_request_checks import acl_request_check
from ottla.broker.apis import CHANGE, LARGE_ANSWER, ServedApi
from ottla.broker.connection import CloseConnection, Connection
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.broker.login.failed_logins import FailedLogins
from ottla.broker.slices import Job, Slices
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import Bounded, TooMuchWorkError, at_pace
from ottla.protocol.api import decode_request_header, encode_response, request_class, response_class
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated.index import APIS
from ottla.protocol.primitives import DecodeError, Message, Pieces

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane

log = get_logger(__name__)


_SMALL_FRAME = 512
"""A frame with no more bytes has few elements."""
_SMALL_ELEMENTS = 256
"""A request with no more elements is handled at once."""
ResultT = TypeVar("ResultT")


class Route:
    """Everything needed to answer one API: its classes, versions and handler."""

    __slots__ = (
        "api_key",
        "changes",
        "check",
        "handle",
        "is_large",
        "large_answer",
        "max_version",
        "min_version",
        "request",
        "response",
    )

    def __init__(self, served: ServedApi) -> None:
        api = APIS[served.api_key]
        self.api_key = served.api_key
        self.changes = bool(served.work & CHANGE)
        self.large_answer = bool(served.work & LARGE_ANSWER)
        self.min_version = api.min_version
        self.max_version = served.max_version if served.max_version is not None else api.max_version
        self.request = request_class(served.api_key)
        self.response = response_class(served.api_key)
        module = importlib.import_module(f"ottla.broker.handlers.{served.handler}")
        self.handle: Handle[Any, Any] = module.handle
        self.is_large: Callable[[RequestContext[Any], Any], bool] | None = getattr(module, "is_large", None)
        """Whether a request of few elements is about many: those of a session."""
        self.check = acl_request_check(served.api_key)

    def frame(self, response: Message, version: int, correlation_id: int) -> Pieces:
        """The response as byte pieces (and file regions), length prefix first."""
        try:
            return encode_response(response, version, correlation_id)
        except Exception as error:  # a bug of the handler: the peer must not wait for this answer for ever
            raise self.unwritable(response, version, error) from error

    def unwritable(self, response: Message, version: int, error: Exception) -> Exception:
        """What to raise for an answer that cannot be encoded: a bug of the handler, or an answer above the limit."""
        if isinstance(error, TooMuchWorkError):
            return error
        log.error("response.failed", api=APIS[self.api_key].name, version=version, error=repr(error))
        return CloseConnection(f"{type(response).__name__} v{version} cannot be written")

    def failure(self, request: Message, error: KafkaError) -> Message:
        """This API's response that carries only the error; the handlers set per-item errors."""
        response = self.response()
        if hasattr(response, "error_code"):
            response.error_code = int(error.code)
            if hasattr(response, "error_message"):
                response.error_message = error.message
            return response
        raise CloseConnection(f"{type(request).__name__} failed with {error.code.name}: {error.message}")


_Served: TypeAlias = "tuple[Message, Answer[Any], Pieces | None]"
"""Of a large request: the request, the handler's answer, and its bytes if the answer is there at once."""


def _small_request(route: Route, frame: memoryview, pos: int, version: int) -> Message | None:
    """The request, or None when it has many elements."""
    try:
        with at_pace(Bounded(_SMALL_ELEMENTS)):
            return route.request.decode(frame, pos, version)[0]
    except TooMuchWorkError:
        return None


class Dispatcher:
    """The APIs that one kind of listener answers."""

    def __init__(self, broker: NodePlane, served: dict[int, ServedApi], slices: Slices | None = None) -> None:
        self.slices = Slices() if slices is None else slices
        self.failed_logins = FailedLogins()
        self.broker = broker
        self.served = served
        self._routes: dict[int, Route] = {}
        self._open = broker.authorizer is None

    def _guarded(
        self, handle: Handle[Message, Message], context: RequestContext[NodePlane], request: Message
    ) -> Answer[Message]:
        from ottla.broker.authorization import guarded

        return guarded(context, request, handle)

    def _route(self, api_key: int) -> Route:
        route = self._routes.get(api_key)
        if route is None:
            served = self.served.get(api_key)
            if served is None:
                raise CloseConnection(f"API key {api_key} is not served on this listener")
            route = self._routes[api_key] = Route(served)
        return route

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        if connection.gate is not None and connection.gate.takes(connection, frame):
            return
        api_key, version, correlation_id, client_id, pos = decode_request_header(frame)
        route = self._routes.get(api_key) or self._route(api_key)
        if not route.min_version <= version <= route.max_version:
            if api_key != ApiKey.API_VERSIONS:
                raise CloseConnection(f"{APIS[api_key].name} v{version} is not supported")
            connection.peer.send(self._unsupported_api_versions(route, correlation_id))
            return
        context = RequestContext(self.broker, connection, api_key, version, client_id)
        request: Message | None = None
        if not route.large_answer:
            if len(frame) <= _SMALL_FRAME:
                request = route.request.decode(frame, pos, version)[0]
            else:
                request = _small_request(route, frame, pos, version)
        if request is None or (route.is_large is not None and route.is_large(context, request)):
            self._dispatch_large(route, context, frame, pos, correlation_id)
            return
        response = self._handled(route, context, request, len(frame))
        if response.__class__ is not route.response:
            if response is not None:
                connection.wait_for(response, route, context, request, correlation_id)
            return
        try:
            pieces = encode_response(response, version, correlation_id)
        except Exception as error:  # as in `Route.frame`, without its call
            raise route.unwritable(response, version, error) from error
        connection.peer.send(pieces)
        if connection.throttle_ms or self.broker.metrics is not None:
            self._sent(context)

    def _sent(self, context: RequestContext[NodePlane]) -> None:
        connection = context.connection
        if connection.throttle_ms:
            connection.mute(connection.throttle_ms)
        if self.broker.metrics is not None:
            self.broker.metrics.answered(context)

    def _dispatch_large(
        self, route: Route, context: RequestContext[NodePlane], frame: memoryview, pos: int, correlation_id: int
    ) -> None:
        context.is_large = True
        copy = memoryview(bytearray(frame))  # the receive buffer has other frames in it when the next slice is done

        def work(job: Job[_Served]) -> _Served:
            request, _ = route.request.decode(copy, pos, context.version)
            job.interruptible = False  # what a handler has begun is not left half done
            job.allow(self.broker.config.ottla_response_max_elements)
            response = self._handled(route, context, request, len(copy))
            if response.__class__ is not route.response:
                return request, response, None
            job.interruptible = True
            return request, response, route.frame(response, context.version, correlation_id)

        def deliver(served: _Served) -> None:
            request, response, pieces = served
            if pieces is not None:
                context.connection.peer.send(pieces)
                self._sent(context)
            elif response is not None:
                context.connection.wait_for(response, route, context, request, correlation_id)

        self.in_slices(context.connection, work, deliver, changes=route.changes)

    def in_slices(
        self,
        connection: Connection,
        work: Callable[[Job[ResultT]], ResultT],
        deliver: Callable[[ResultT], None],
        *,
        changes: bool = False,
    ) -> None:
        """Run `work` in slices and pass its result to `deliver`; the connection is busy meanwhile."""
        config = self.broker.config
        job = self.slices.start(
            work, config.ottla_request_max_changes if changes else config.ottla_request_max_elements
        )
        if job.done:
            deliver(job.result())
        else:
            connection.wait_for_job(job, lambda: deliver(job.result()))

    def _handled(self, route: Route, context: RequestContext[NodePlane], request: Message, size: int) -> Answer[Any]:
        """The handler's answer. Sends nothing."""
        if route.check is not None and route.check(request):
            raise CloseConnection(f"{type(request).__name__} has an unknown (0) type, pattern, operation or permission")
        broker = self.broker
        if broker.metrics is not None:
            broker.metrics.started(context)
        try:
            handle = route.handle if self._open else partial(self._guarded, route.handle)
            if broker.audit is not None:
                handle = partial(broker.audit.around, handle)
            if broker.quotas is None:
                return handle(context, request)
            return broker.quotas.around(context, request, size, handle)
        except KafkaError as error:
            return route.failure(request, error)
        except (CloseConnection, DecodeError, TooMuchWorkError):
            raise
        except Exception as error:  # noqa: BLE001 - the dispatcher is where a handler's bug becomes an answer
            return self._bug(route, request, error)

    def settled(
        self, route: Route, context: RequestContext[NodePlane], request: Message, error: Exception
    ) -> Message | None:
        """The answer of a handler that failed while it was awaited: the API's error response; None when the peer is
        disconnected instead.
        """
        try:
            if isinstance(error, CloseConnection):
                raise error
            if isinstance(error, KafkaError):
                return route.failure(request, error)
            return self._bug(route, request, error)
        except CloseConnection as close:
            context.connection.refuse(str(close))
            return None

    def _bug(self, route: Route, request: Message, error: Exception) -> Message:
        log.error("request.failed", api=APIS[route.api_key].name, error=repr(error), exc_info=error)
        return route.failure(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _unsupported_api_versions(self, route: Route, correlation_id: int) -> Pieces:
        """The answer to an unsupported version of ApiVersions: v0 body, error 35, and the supported range (KIP-511)."""
        from ottla.protocol.generated.api_versions_response import ApiVersion

        response = route.response()
        response.error_code = int(ErrorCode.UNSUPPORTED_VERSION)  # type: ignore[attr-defined]
        response.api_keys = [ApiVersion(route.api_key, route.min_version, route.max_version)]  # type: ignore[attr-defined]
        return route.frame(response, 0, correlation_id)
