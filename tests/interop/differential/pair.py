"""A pair of connections that say the same thing to two servers and compare what comes back.

An outcome is a decoded answer, "closed" or "silent" (nothing within the time limit); outcomes are compared too, and so
is the length of the answer where nothing in it varies in length by nature. Differences are collected, so that one run
shows them all; `check` raises them. A request that needs a server's own values (topic ids, member ids) is given as a
function of the Side.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.model.errors import ErrorCode
from ottla.model.ids import Uuid
from ottla.protocol.api import encode_request, response_class, response_header_version
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import DecodeError, Message, skip_tags
from tests.interop.differential.allowed import USED
from tests.interop.differential.servers import Address
from tests.interop.differential.trees import Symbols, differences
from tests.support.frames import RawConnection

CLOSED = "closed"
SILENT = "silent"
AFTERWARDS = 0.2
"""Seconds to wait for what may follow an answer that is already there."""
PATIENCE = 30.0
"""Seconds to wait for what must come."""
Outcome: TypeAlias = "Message | str"
Request: TypeAlias = "Message | Callable[[Side], Message]"
_markers = itertools.count()


class Side:
    """One server: its connections, its symbols, what a scenario remembers of it, and its last answer."""

    def __init__(self, address: Address, symbols: Symbols | None = None) -> None:
        self.address = address
        self.name = address.name
        self.symbols = symbols or Symbols(
            texts={str(address.directory): "<dir>"},
            ports={address.port, address.controller_port},
            reference=address.name == "apache",
        )
        self.memory: dict[str, Any] = {}
        self.last: Any = None
        self._connection: RawConnection | None = None
        self._correlation_id = 0
        self._sent: list[tuple[type[Message], int]] = []
        self.length = 0

    def send(self, request: Message, version: int, *, client_id: str | None = "pair") -> None:
        self._correlation_id += 1
        data = b"".join(bytes(p) for p in encode_request(request, version, self._correlation_id, client_id))
        try:
            self.connection.send_raw(data)
        except OSError:
            return  # the read says closed

    def receive(self, key: int, version: int) -> Outcome:
        """The answer to the request sent last."""
        frame = self.receive_frame()
        if isinstance(frame, str):
            self.last = None
            return frame
        self.length = len(frame)
        if int.from_bytes(frame[:4], "big", signed=True) != self._correlation_id:
            return f"correlation id of another request: {frame[:4]!r}"
        position = skip_tags(frame, 4) if response_header_version(key, version) else 4
        for each in (version, 0):  # ApiVersions answers an unknown version in v0
            try:
                answer, end = response_class(key).decode(frame, position, each)
            except DecodeError as error:
                if each == 0 or key != ApiVersionsRequest.API_KEY:
                    return f"not readable: {error}"
                continue
            self.last = answer
            return answer if end == len(frame) else f"{len(frame) - end} bytes after the answer"
        raise AssertionError("unreachable")

    def receive_frame(self) -> bytes | str:
        """A whole frame without its length, or the outcome."""
        try:
            frame = self.connection.read_frame()
        except TimeoutError:
            frame, outcome = None, SILENT
        except (OSError, EOFError):
            frame, outcome = None, CLOSED
        else:
            outcome = CLOSED
        if frame is None:
            self.close()
            return outcome
        return frame

    @property
    def connection(self) -> RawConnection:
        if self._connection is None:
            self._connection = RawConnection("127.0.0.1", self.address.port, timeout=PATIENCE)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, request: Message, version: int) -> Any:
        """A request on a connection of its own, for the scenario and not compared."""
        other = Side(self.address, self.symbols)
        try:
            other.send(request, version)
            return other.receive(request.API_KEY, version)
        finally:
            other.close()

    def topic_id(self, name: str) -> Uuid:
        answer = self.ask(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)
        found: Uuid = answer.topics[0].topic_id
        return found


def wait(
    sides: Iterable[Side], request: Request, version: int, done: Callable[[Any], bool], timeout: float = PATIENCE
) -> None:
    """Ask each, uncompared, until it answers so: a change is visible a little later than it is acknowledged."""
    for side in sides:
        deadline = time.monotonic() + timeout
        message = request if isinstance(request, Message) else request(side)
        while not isinstance(answer := side.ask(message, version), Message) or not done(answer):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{side.name} never answered as expected: {answer!r}")
            time.sleep(0.01)


def settle(sides: Iterable[Side]) -> None:
    """Until each broker has done all that follows from the changes so far. Kafka publishes one image after the other,
    each to its metadata cache first and to replicas, coordinators and log configs behind it: once Metadata tells a
    later image, the earlier one is done."""
    sides = tuple(sides)
    marker = f"settled.{next(_markers)}"
    for side in sides:
        side.ask(CreateTopicsRequest([CreatableTopic(marker, 1, 1)], 10_000), 7)
    await_leaders(sides, marker, 1)
    for side in sides:
        side.ask(DeleteTopicsRequest(topic_names=[marker], timeout_ms=10_000), 5)
    _await_unlisted(sides, marker)


def await_leaders(sides: Iterable[Side], name: str, partitions: int) -> None:
    asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, asked)])
    wait(sides, request, 7, lambda a: all(p.error_code == 0 for t in a.topics for p in t.partitions))


def _await_unlisted(sides: Iterable[Side], name: str) -> None:
    request = MetadataRequest([MetadataRequestTopic(name=name)], False)
    wait(sides, request, 12, lambda a: a.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Pending(NamedTuple):
    pair: Pair
    key: int
    version: int
    shown: str

    def finish(self) -> Answers:
        return self.pair._finish(self)


class Answers(NamedTuple):
    reference: Any
    candidate: Any


class Pair:
    def __init__(self, reference: Side, candidate: Side, scenario: str, found: list[str] | None = None) -> None:
        self.sides = (reference, candidate)
        self._scenario = scenario
        self._found: list[str] = [] if found is None else found
        self._count = 0

    def name(self, suffix: str) -> str:
        """A name (of a topic, a group) that no other scenario uses."""
        return f"{self._scenario}.{suffix}"

    def another(self) -> Pair:
        """A second pair of connections to the same servers; its differences are this pair's."""
        left, right = (Side(side.address, side.symbols) for side in self.sides)
        left.memory, right.memory = (side.memory for side in self.sides)
        return Pair(left, right, self._scenario, self._found)

    def send(self, request: Request, version: int, *, client_id: str | None = "pair") -> Answers:
        """The same request to both, compared; the decoded answers, for the scenario's next step."""
        return self.start(request, version, client_id=client_id).finish()

    def start(self, request: Request, version: int, *, client_id: str | None = "pair") -> Pending:
        """Send without waiting (JoinGroup); `finish` reads and compares."""
        self._count += 1
        shown, key = "", 0
        for side in self.sides:
            message = request if isinstance(request, Message) else request(side)
            side.send(message, version, client_id=client_id)
            shown, key = shown or _short(message), message.API_KEY
        return Pending(self, key, version, shown)

    def send_unanswered(self, request: Request, version: int) -> None:
        """Produce with acks=0: nothing may come back but the answer to the ApiVersions sent behind it."""
        self.start(request, version)
        self.send(ApiVersionsRequest(), 0)

    def send_bytes(self, data: bytes, shown: str, *, end: bool = False, timeout: float = 1.0) -> None:
        """Raw bytes on new connections, compared by what becomes of them: closed, silent or answered (and then?)."""
        for side in self.sides:
            side.close()
            side.connection.send_raw(data)
            if end:
                side.connection.socket.shutdown(socket.SHUT_WR)
        outcomes: Sequence[bytes | str] = self._outcomes(timeout)
        if not any(isinstance(outcome, str) for outcome in outcomes):
            outcomes = [f"answered, then {then!s:.8}" for then in self._outcomes(AFTERWARDS)]
        for side in self.sides:
            side.close()
        if outcomes[0] != outcomes[1]:
            self._report(shown, [("outcome", outcomes[0], outcomes[1])])

    def _outcomes(self, timeout: float) -> list[bytes | str]:
        """What comes next from both. What one does within the timeout the other must do, on a busy machine a while later."""
        waiting = [side.connection.socket for side in self.sides]
        stirred = select.select(waiting, [], [], timeout)[0]
        for one in waiting if stirred else []:
            if one not in stirred:
                stirred += select.select([one], [], [], PATIENCE)[0]
        return [side.receive_frame() if side.connection.socket in stirred else SILENT for side in self.sides]

    def remember(self, name: str, get: Callable[[Any], Any]) -> None:
        """Keep a value of each side's last answer under a name in `side.memory`."""
        for side in self.sides:
            side.memory[name] = None if side.last is None else get(side.last)

    def create(self, name: str, partitions: int = 1, **configs: str) -> str:
        """A topic on both servers whose partitions take requests; `retention_ms="1"` is retention.ms."""
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        self.send(CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], settings)], 10_000), 7)
        self.await_leaders(name, partitions)
        return name

    def await_leaders(self, name: str, partitions: int) -> None:
        await_leaders(self.sides, name, partitions)

    def await_gone(self, name: str) -> None:
        """Until neither lists the topic and its partitions take no more requests: Kafka's come later than its metadata."""
        _await_unlisted(self.sides, name)
        self.settle()

    def settle(self) -> None:
        settle(self.sides)

    def wait(self, request: Request, version: int, done: Callable[[Any], bool], timeout: float = PATIENCE) -> None:
        wait(self.sides, request, version, done, timeout)

    def check(self) -> None:
        for side in self.sides:
            side.close()
        if self._found:
            raise AssertionError(f"{len(self._found)} answers differ\n" + "\n".join(self._found))

    def _finish(self, sent: Pending) -> Answers:
        outcomes = [side.receive(sent.key, sent.version) for side in self.sides]
        shown = f"{sent.shown} v{sent.version}"
        trees = [
            side.symbols.tree(outcome) if isinstance(outcome, Message) else outcome
            for side, outcome in zip(self.sides, outcomes, strict=True)
        ]
        found = differences(*trees)
        left, right = (side.symbols.before for side in self.sides)
        USED.update(path for path in left if left[path] != right.get(path))
        varies = any(side.symbols.length_varies for side in self.sides)
        if not found and not varies and isinstance(outcomes[0], Message):
            sizes = [f"{side.length} bytes" for side in self.sides]
            found = differences(sizes[0], sizes[1], "length")
        if found:
            self._report(shown, found)
        return Answers(*outcomes)

    def _report(self, shown: str, found: Iterable[tuple[str, Any, Any]]) -> None:
        lines = [f"request {self._count}: {shown}"]
        for path, left, right in found:
            lines += [
                f"  {path or 'answer'}",
                *(f"    {s.name:7} {_value(path, v)}" for s, v in zip(self.sides, (left, right), strict=True)),
            ]
        self._found.append("\n".join(lines))


def _value(path: str, value: Any) -> str:
    if path.endswith("error_code") and isinstance(value, int):
        return f"{value} {ErrorCode(value).name}"
    text = repr(value)
    return text if len(text) < 6000 else f"{text[:6000]}..."


def _short(message: Message) -> str:
    text = repr(message)
    return text if len(text) < 600 else f"{text[:600]}..."
