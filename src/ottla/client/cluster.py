"""The cluster as an admin client sees it: who the brokers are, and which of them to ask what.

Connections are opened when first needed and kept. A call is tried again, with a pause, while a broker cannot be reached
or answers that a different broker is in charge. `api_timeout_ms` ends the retries, with the error text of Kafka's admin
client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from ottla.client.connection import Answer, BrokerConnection
from ottla.client.errors import CallTimeout, ClientError, ConnectionFailed, check
from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.protocol.primitives import Message

Result = TypeVar("Result")
Address = tuple[str, int]
GROUP, TRANSACTION, SHARE = 0, 1, 2
"""What a coordinator is asked for (FindCoordinator's key type)."""
_AGAIN = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip
_CONNECT_SECONDS = 10.0
_LEAST_CONNECT_SECONDS = 1.0
"""An address that does not answer leaves this much of the time to each of the others."""


class Cluster:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._connections: dict[Address, BrokerConnection] = {}
        self._brokers: dict[int, Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ------------------------------------------------------------------------------------------------ whom to ask

    def any_call(self, name: str, request: Message, answer: type[Answer], highest: int | None = None) -> Answer:
        """Ask whichever node answers; `name` is the call's name in Kafka's messages."""
        return self.retried(name, lambda deadline: self.any(deadline).call(request, answer, deadline, highest=highest))

    def node_call(
        self, name: str, node_id: int, request: Message, answer: type[Answer], highest: int | None = None
    ) -> Answer:
        def attempt(deadline: float) -> Answer:
            return self.node(node_id, deadline).call(request, answer, deadline, highest=highest)

        return self.retried(name, attempt)

    def node_attempt(self, node_id: int, request: Message, answer: type[Answer], highest: int | None = None) -> Answer:
        """Ask a node once; ConnectionFailed or CallTimeout if it does not answer."""
        deadline = time.monotonic() + self.settings.request_timeout_ms / 1000
        return self.node(node_id, deadline).call(request, answer, deadline, highest=highest)

    def controller_call(
        self, name: str, request: Message, answer: type[Answer], error: Callable[[Answer], int] | None = None
    ) -> Answer:
        """Ask the active controller: any broker forwards, so only --bootstrap-controller has to look for it."""

        def attempt(deadline: float) -> Answer:
            connection = self._active_controller(deadline) if self.settings.controllers else self.any(deadline)
            answered = connection.call(request, answer, deadline)
            if error is not None and error(answered) == ErrorCode.NOT_CONTROLLER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            return answered

        return self.retried(name, attempt)

    def coordinator_call(
        self,
        name: str,
        key: str,
        request: Message,
        answer: type[Answer],
        error: Callable[[Answer], int],
        *,
        kind: int = GROUP,
        highest: int | None = None,
    ) -> Answer:
        """Ask the coordinator of a group or a transactional id; `error` returns the answer's error code."""

        def attempt(deadline: float) -> Answer:
            _, _, node_id = self.coordinator(key, kind, deadline)
            answered = self.node(node_id, deadline).call(request, answer, deadline, highest=highest)
            code = error(answered)
            if code in _AGAIN:
                raise KafkaError(ErrorCode(code))
            return answered

        return self.retried(name, attempt)

    def retried(self, name: str, attempt: Callable[[float], Result]) -> Result:
        """Run `attempt` with its deadline until it succeeds or refuses for good."""
        deadline = time.monotonic() + self.settings.api_timeout_ms / 1000
        while True:
            try:
                return attempt(min(deadline, time.monotonic() + self.settings.request_timeout_ms / 1000))
            except (ConnectionFailed, CallTimeout, KafkaError) as reason:
                if isinstance(reason, KafkaError) and reason.code not in _AGAIN:
                    raise
                pause = self.settings.retry_backoff_ms / 1000
                if time.monotonic() + pause >= deadline:
                    if isinstance(reason, KafkaError):
                        raise
                    what = "a node assignment" if isinstance(reason, ConnectionFailed) else "a response"
                    raise CallTimeout(f"Timed out waiting for {what}. Call: {name}") from reason
                time.sleep(pause)

    # ---------------------------------------------------------------------------------------------- connections

    def any(self, deadline: float) -> BrokerConnection:
        """An open connection, otherwise a new connection to the first address that answers."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        failures: list[ClientError] = []
        addresses = (*self.settings.bootstrap, *self._brokers.values())
        share = max(_LEAST_CONNECT_SECONDS, (deadline - time.monotonic()) / len(addresses))
        for address in addresses:
            try:
                return self._open(address, min(deadline, time.monotonic() + share))
            except (ConnectionFailed, CallTimeout) as reason:
                failures.append(reason)
        raise failures[0]

    def node(self, node_id: int, deadline: float) -> BrokerConnection:
        if node_id not in self._brokers:
            self.metadata((), deadline)
        if node_id not in self._brokers:
            raise ConnectionFailed(f"node {node_id} is not in the cluster's metadata")
        return self._open(self._brokers[node_id], deadline)

    def _open(self, address: Address, deadline: float) -> BrokerConnection:
        if address not in self._connections or self._connections[address].closed:
            limit = min(deadline, time.monotonic() + _CONNECT_SECONDS)
            self._connections[address] = BrokerConnection(*address, self.settings, limit)
        return self._connections[address]

    # --------------------------------------------------------------------------------------------------- metadata

    def metadata(self, topics: Iterable[str] | None, deadline: float) -> MetadataResponse:
        """Metadata of these topics (None: of all), never creating one; remembers the brokers."""
        requested_topics = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        connection = self.any(deadline)
        if self.settings.controllers:
            return self._controller_metadata(connection, deadline)
        request = MetadataRequest(topics=requested_topics, allow_auto_topic_creation=False)
        response = connection.call(request, MetadataResponse, deadline)
        self._brokers.update({broker.node_id: (broker.host, broker.port) for broker in response.brokers})
        return response

    def describe(self, name: str, topics: Iterable[str] | None = ()) -> MetadataResponse:
        """`metadata`, tried again as other calls are."""
        names = None if topics is None else list(topics)
        return self.retried(name, lambda deadline: self.metadata(names, deadline))

    def _controller_metadata(self, connection: BrokerConnection, deadline: float) -> MetadataResponse:
        from ottla.protocol.generated.describe_cluster_request import DescribeClusterRequest
        from ottla.protocol.generated.describe_cluster_response import DescribeClusterResponse
        from ottla.protocol.generated.metadata_response import MetadataResponseBroker

        response = connection.call(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse, deadline)
        check(response.error_code, response.error_message)
        self._brokers.update({broker.broker_id: (broker.host, broker.port) for broker in response.brokers})
        brokers = [MetadataResponseBroker(b.broker_id, b.host, b.port, b.rack) for b in response.brokers]
        return MetadataResponse(brokers=brokers, cluster_id=response.cluster_id, controller_id=response.controller_id)

    def _active_controller(self, deadline: float) -> BrokerConnection:
        metadata = self.metadata((), deadline)
        if metadata.controller_id < 0:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self.node(metadata.controller_id, deadline)

    def coordinator(self, key: str, kind: int, deadline: float) -> tuple[str, int, int]:
        """Host, port and id of the broker that coordinates a group or a transactional id."""
        from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
        from ottla.protocol.generated.find_coordinator_response import FindCoordinatorResponse

        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        response = self.any(deadline).call(request, FindCoordinatorResponse, deadline)
        if not response.coordinators:  # versions below 4 answer for one key, at the top
            check(response.error_code, response.error_message)
            self._brokers[response.node_id] = (response.host, response.port)
            return response.host, response.port, response.node_id
        coordinator = response.coordinators[0]
        check(coordinator.error_code, coordinator.error_message)
        self._brokers[coordinator.node_id] = (coordinator.host, coordinator.port)
        return coordinator.host, coordinator.port, coordinator.node_id
