"""Walks: the files, functions and Python calls of one request, counted with sys.setprofile in a real node.

`python -m tools.walks [TREE]` prints a table of seven walks (`WALKS`). TREE is the checkout of a different
commit with its own .venv: the same program then counts that tree, so that two trees can be compared. `--functions WALK`
lists what runs. Nothing here measures time: the counts are the same on a loaded machine.

- *all*: files and functions of the product that run in every repetition, in every thread of the serving process. A
  comprehension and a lambda belong to the function around it; the codec and templates are not counted.
- *way*: those of them that are on the call stack where something happens: a decision is made, bytes are read or written,
  an answer or a request is sent, rows or a page are made. This is what somebody follows from the socket to the place; *all* has the side steps, too.
- *calls*: all Python calls, also those of libraries, without the event loop's own.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack, unpack
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.testing import Broker

ROUNDS = 7
WARM_UP = 3
CLIENT_ID = "walks"
SERVER_THREAD = "ottla-broker"
FETCH_WAIT_MS = 60_000
STATIONS = frozenset({"DiskFile.pwrite", "DiskFile.pread", "Channel._send_bytes", "encode_request", "decode_chunk"})
"""Where something happens: the disk, the answer, a request to a broker, rows."""
PAGE = ("/console/render.py", "render")
"""Where a page is made. Settings have a function of the same name."""
DECISION = ("self", "response", "records")
"""The first parameters of `Decision.__init__`, a method that the dataclass makes."""
LOOP_FILES = ("/asyncio/", "/selectors.py")
CODEC = ("protocol/generated/", "protocol/primitives.py")
TEMPLATE = ".html"
"""Made by a program: nobody reads these on a walk."""


class Function(NamedTuple):
    file: str
    name: str


class Walk(NamedTuple):
    functions: Counter[Function]
    """The product's own functions that ran in each repetition, with their calls."""
    way: set[Function]
    """Those that were on the stack of a station in each repetition."""
    calls: int
    """All Python calls of the repetition that made the fewest: others may hold a timer of the node."""

    def without(self, other: Walk) -> Walk:
        """A walk without the walk of a different request that runs within it."""
        return Walk(self.functions - other.functions, self.way, self.calls - other.calls)


def files(functions: Iterable[Function]) -> int:
    return len({function.file for function in functions})


class Recorder:
    """Every call of a Python function, while `recording`, in the threads that `install` has reached."""

    def __init__(self) -> None:
        self._codes: list[CodeType] = []
        self._way: set[Function] = set()
        self._ignored: set[int] = set()
        self.recording = False

    def install(self) -> None:
        """For all threads that start from now on."""
        threading.setprofile(self._on_event)

    def uninstall(self) -> None:
        self.recording = False
        threading.setprofile(None)

    def ignore_thread(self, thread: threading.Thread) -> None:
        self._ignored.add(thread.ident or 0)

    @contextmanager
    def this_thread(self) -> Iterator[None]:
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self.recording or threading.get_ident() in self._ignored:
            return
        code = frame.f_code
        self._codes.append(code)
        if is_station(code):
            self._way.update(stack(frame))

    def walk(self, steps: Callable[[], None], settle: Callable[[], None]) -> Walk:
        """`steps` a few times; `settle` returns when the threads have nothing more to do for them."""
        rounds = [self._round(steps, settle) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        walk = rounds[0]
        for other in rounds[1:]:
            walk = Walk(walk.functions & other.functions, walk.way & other.way, min(walk.calls, other.calls))
        return walk

    def _round(self, steps: Callable[[], None], settle: Callable[[], None]) -> Walk:
        settle()
        self._codes, self._way = [], set()
        self.recording = True
        steps()
        settle()
        self.recording = False
        codes = [code for code in self._codes if not is_of_the_loop(code)]
        functions = Counter(function for code in codes if (function := own_function(code)) is not None)
        return Walk(functions, self._way, len(codes))


def is_station(code: CodeType) -> bool:
    if code.co_qualname in STATIONS:
        return True
    if code.co_name == PAGE[1]:
        return code.co_filename.endswith(PAGE[0])
    return code.co_name == "__init__" and code.co_varnames[:3] == DECISION


def stack(frame: FrameType | None) -> Iterator[Function]:
    """The product's own functions on the stack, also of the greenlets around a slice."""
    from greenlet import getcurrent

    current = getcurrent()
    while frame is not None:
        function = own_function(frame.f_code)
        if function is not None:
            yield function
        frame = frame.f_back
        if frame is None and current.parent is not None:
            current = current.parent
            frame = current.gr_frame


def is_of_the_loop(code: CodeType) -> bool:
    """The event loop's own calls, which uvloop does not make, and those of this program."""
    return code.co_filename == __file__ or any(part in code.co_filename for part in LOOP_FILES)


def own_function(code: CodeType) -> Function | None:
    """None for the function of a library or of the codec, and for an expression inside of a function."""
    _, separator, path = code.co_filename.rpartition("/src/ottla/")
    if (
        not separator
        or path.startswith(CODEC)
        or path.endswith(TEMPLATE)
        or code.co_name in ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<module>")
    ):
        return None
    return Function(path, code.co_qualname)


class Client:
    """One connection with frames in the tree's own codec."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, port = bootstrap_servers.split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._correlation_id = 0

    def send(self, request: Any, version: int) -> None:
        from ottla.protocol.api import encode_request

        self._correlation_id += 1
        self._socket.sendall(b"".join(encode_request(request, version, self._correlation_id, CLIENT_ID)))

    def receive(self) -> bytes:
        (size,) = unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the node has closed the connection")
            data += part
        return data

    def call(self, request: Any, version: int, response_type: Any) -> Any:
        self.send(request, version)
        frame = memoryview(self.receive())
        flexible = version >= response_type.FLEXIBLE_FROM
        return response_type.decode(frame, 5 if flexible else 4, version)[0]

    def close(self) -> None:
        self._socket.close()


def one_record() -> bytes:
    """A batch with one record of 100 bytes, as a client makes it."""
    from ottla.protocol.crc32c import crc32c

    now_ms = int(time.time() * 1000)
    record = b"\xd6\x01\0\0\0\x01\xc8\x01" + b"x" * 100 + b"\0"
    body = pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body


class Requests:
    """The requests of the walks: those that librdkafka sends, where it has the API."""

    def __init__(self, client: Client) -> None:
        from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
        from ottla.protocol.generated.metadata_response import MetadataResponse

        self._client = client
        self.create_topic("t")
        while True:  # until the broker has the topic's metadata
            request = MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
            response = client.call(request, 12, MetadataResponse)
            if response.topics[0].error_code == 0 and response.topics[0].partitions[0].leader_id >= 0:
                break
        self._topic_id = response.topics[0].topic_id
        self._names = 0
        self._members = 0
        self._records = one_record()

    def produce(self) -> Any:
        from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

        data = PartitionProduceData(0, self._records)
        return ProduceRequest(None, 1, 30_000, [TopicProduceData("t", partition_data=[data])])

    def fetch(self, offset: int) -> Any:
        from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic

        partition = FetchPartition(
            partition=0, current_leader_epoch=0, fetch_offset=offset, partition_max_bytes=1024 * 1024
        )
        topic = FetchTopic(topic_id=self._topic_id, partitions=[partition])
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=50 * 1024 * 1024, session_epoch=-1, topics=[topic]
        )

    def create_topic(self, name: str) -> None:
        from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
        from ottla.protocol.generated.create_topics_response import CreateTopicsResponse

        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        response = self._client.call(CreateTopicsRequest([topic], 30_000), 7, CreateTopicsResponse)
        if response.topics[0].error_code:
            raise RuntimeError(f"topic {name}: {response.topics[0].error_message}")

    def next_topic(self) -> None:
        self._names += 1
        self.create_topic(f"topic-{self._names}")

    def heartbeat(self, group: str) -> int:
        """A new member of a group joins; returns the error code."""
        from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
        from ottla.protocol.generated.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

        self._members += 1
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=f"member-{self._members}",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        response = self._client.call(request, 1, ConsumerGroupHeartbeatResponse)
        return int(response.error_code)

    def join_new_group(self) -> None:
        code = self.heartbeat(f"group-{self._members}")
        if code:
            raise RuntimeError(f"a heartbeat failed with error {code}")

    def await_coordinator(self) -> None:
        """Until the partitions of the groups' topic are led by the node."""
        from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
        from ottla.protocol.generated.find_coordinator_response import FindCoordinatorResponse

        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
        while self._client.call(request, 4, FindCoordinatorResponse).coordinators[0].error_code:
            pass
        while self.heartbeat("first"):
            pass


def _plain_broker(properties: dict[str, str]) -> Broker:
    """A broker of the test kit whose node runs on the real machine, as a node in production does."""
    from ottla.server.machine import NodeMachine, real_machine
    from ottla.testing.broker import Broker
    from ottla.testing.node_thread import NodeThread

    class PlainNode(NodeThread):
        def machine(self) -> NodeMachine:
            return real_machine()

    class PlainBroker(Broker):
        node_class = PlainNode

    return PlainBroker(properties=properties)


class Walks:
    """A node in this process, whose loop and workers are recorded, and the clients of the walks."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self._recorder.install()
        self._broker = _plain_broker(properties={"offsets.topic.num.partitions": "1", "num.partitions": "1"})
        self._broker.start()
        self._loop: Any = self._broker._loop  # noqa: SLF001 - the counter waits for turns of the loop
        self._client = Client(self._broker.bootstrap_servers)
        self._reader = Client(self._broker.bootstrap_servers)
        self._requests = Requests(self._client)
        self._written = 0

    def close(self) -> None:
        self._client.close()
        self._reader.close()
        self._broker.stop()
        self._recorder.uninstall()

    def _settle(self) -> None:
        """A few turns of the loop: the bytes that were sent before have been handled."""
        for _ in range(4):
            turn = threading.Lock()  # not an Event: releasing a lock is no Python call
            turn.acquire()
            self._loop.call_soon_threadsafe(turn.release)
            turn.acquire()

    def _count(self, steps: Callable[[], None]) -> Walk:
        return self._recorder.walk(steps, self._settle)

    def _write(self) -> None:
        self._client.send(self._requests.produce(), 10)
        self._client.receive()
        self._written += 1

    def produce(self) -> Walk:
        return self._count(self._write)

    def fetch(self) -> Walk:
        """A fetch that finds its record."""
        self._write()

        def steps() -> None:
            self._reader.send(self._requests.fetch(self._written - 1), 16)
            self._reader.receive()

        return self._count(steps)

    def parked_fetch(self) -> Walk:
        """A fetch that waits for its record, without the Produce that brings the record."""

        def steps() -> None:
            self._reader.send(self._requests.fetch(self._written), 16)
            self._settle()
            self._write()
            self._reader.receive()

        return self._count(steps).without(self.produce())

    def create_topics(self) -> Walk:
        return self._count(self._requests.next_topic)

    def heartbeat(self) -> Walk:
        self._requests.await_coordinator()
        return self._count(self._requests.join_new_group)

    def spark_read(self) -> Walk:
        """The reader in the driver and in a worker, both in this thread, without Spark itself."""
        from ottla.pipelines.datasource import OttlaDataSource

        def steps() -> None:
            options = {"kafka.bootstrap.servers": self._broker.bootstrap_servers, "subscribe": "t"}
            with self._recorder.this_thread():
                source = OttlaDataSource(options)
                reader: Any = source.reader(source.schema())  # type: ignore[arg-type]
                for partition in reader.partitions():
                    list(reader.read(partition))

        self._write()
        return self._without_the_node(steps)

    def console_page(self) -> Walk:
        import httpx
        import uvicorn

        from ottla.console.app import make_app
        from ottla.console.settings import ConsoleSettings

        settings = ConsoleSettings(bootstrap_servers=self._broker.bootstrap_servers, sample_interval_s=3600)
        config = uvicorn.Config(make_app(settings), host="127.0.0.1", port=0, log_level="warning", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:

            def steps() -> None:
                http.get("/topics").raise_for_status()

            try:
                return self._without_the_node(steps)
            finally:
                server.should_exit = True
                thread.join()

    def _without_the_node(self, steps: Callable[[], None]) -> Walk:
        for thread in threading.enumerate():
            if thread.name == SERVER_THREAD:
                self._recorder.ignore_thread(thread)
        return self._recorder.walk(steps, lambda: None)


WALKS: dict[str, Callable[[Walks], Walk]] = {
    "Produce": Walks.produce,
    "Fetch": Walks.fetch,
    "parked Fetch": Walks.parked_fetch,
    "CreateTopics": Walks.create_topics,
    "heartbeat": Walks.heartbeat,
    "Spark read": Walks.spark_read,
    "console page": Walks.console_page,
}
"""The last two ignore the node's own thread, and come last."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.walks", description=__doc__)
    parser.add_argument("tree", nargs="?", type=Path, help="a checkout with a .venv (default: this one)")
    parser.add_argument("--functions", metavar="WALK", action="append", default=[], choices=list(WALKS))
    parser.add_argument("--only", metavar="WALK", action="append", default=[], choices=list(WALKS))
    arguments = parser.parse_args()
    if arguments.tree is not None:
        tree = arguments.tree.resolve()
        options = [word for name in arguments.functions for word in ("--functions", name)]
        options += [word for name in arguments.only for word in ("--only", name)]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        raise SystemExit(
            subprocess.call([str(tree / ".venv/bin/python"), __file__, *options], env=environment, cwd=tree)
        )
    report(arguments.only or list(WALKS), arguments.functions)


def report(names: list[str], listed: list[str]) -> None:
    walks = Walks()
    try:
        print(f"{'walk':14} {'way':>8} {'all':>8} {'calls':>6}   (way and all: files/functions)")
        for name in names:
            walk = WALKS[name](walks)
            way, all_functions = (f"{files(some)}/{len(some)}" for some in (walk.way, set(walk.functions)))
            print(f"{name:14} {way:>8} {all_functions:>8} {walk.calls:6}")
            if name in listed:
                for function, calls in sorted(walk.functions.items()):
                    print(f"  {'*' if function in walk.way else ' '} {function.file:44} {function.name:50} {calls}")
    finally:
        walks.close()


if __name__ == "__main__":
    main()
