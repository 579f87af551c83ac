"""A server that takes produced bytes and keeps no promises: the least that any broker has to do, for comparison.

    python -m bench.floor_server PORT [FOLDER]

Without a folder the batches are counted and dropped: a rate that a client reaches here is the client's own limit. With
a folder each batch is also written to a file of its partition, and read back by sendfile: what the kernel asks for its
copies of the bytes. No CRC, no producer state, no groups, no topics that outlive it. One thread per connection with
blocking calls, because a few connections are all that a load opens; a fetch that finds nothing waits for the next batch,
whose thread answers it. Each answers from 127.0.0.1 alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ottla.model.ids import Uuid, new_uuid
from ottla.protocol.api import decode_request_header, encode_response, request_class
from ottla.protocol.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.protocol.generated.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.generated.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.protocol.generated.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.generated.index import APIS
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse
from ottla.protocol.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.generated.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.system.sockets import MORE_FOLLOWS

HOST = "127.0.0.1"
_LAST_OFFSET_DELTA_AT = 23
_BUFFER = 2 * 1024 * 1024
_UNKNOWN_TOPIC = 3
_EARLIEST = -2
_PATIENCE_S = 0.5
_PRODUCE, _FETCH = 0, 1


class Region:
    """A part of a file in an answer."""

    def __init__(self, fd: int, position: int, length: int) -> None:
        self.fd, self.position, self.length = fd, position, length

    def __len__(self) -> int:
        return self.length

    def send(self, peer: socket.socket) -> None:
        while self.length:
            sent = os.sendfile(peer.fileno(), self.fd, self.position, self.length)
            self.position += sent
            self.length -= sent


class Partition:
    """A count, and with a folder a file that only grows."""

    def __init__(self, path: Path | None) -> None:
        self.end = 0
        self.fd = None if path is None else os.open(path, os.O_CREAT | os.O_RDWR)
        self._offsets: list[int] = []
        self._positions = [0]

    def take(self, batch: memoryview) -> int:
        first = self.end
        if self.fd is not None:
            struct.pack_into(">q", batch, 0, first)
            os.pwrite(self.fd, batch, self._positions[-1])
            self._offsets.append(first)
            self._positions.append(self._positions[-1] + len(batch))
        self.end += int(struct.unpack_from(">i", batch, _LAST_OFFSET_DELTA_AT)[0]) + 1
        return first

    def find(self, offset: int, max_bytes: int) -> Region | None:
        """Whole batches from the one that holds `offset`, one at least."""
        if self.fd is None or offset >= self.end:
            return None
        index = bisect_right(self._offsets, offset) - 1
        start = self._positions[index]
        last = max(bisect_right(self._positions, start + max_bytes) - 1, index + 1)
        return Region(self.fd, start, self._positions[last] - start)


class Topic:
    def __init__(self, name: str, partitions: int, folder: Path | None) -> None:
        self.name = name
        self.id = new_uuid(os.urandom)
        self.paths = [folder / f"{name}-{index}" for index in range(partitions)] if folder is not None else []
        self.partitions = [Partition(self.paths[index] if self.paths else None) for index in range(partitions)]

    def remove(self) -> None:
        for partition, path in zip(self.partitions, self.paths, strict=False):
            if partition.fd is not None:
                os.close(partition.fd)
            path.unlink()


class FloorServer:
    def __init__(self, port: int, folder: Path | None) -> None:
        self._port = port
        self._folder = folder
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[Uuid, Topic] = {}
        self._producers = 0
        self._parked: list[Callable[..., bool]] = []
        self._lock = threading.Lock()
        self._answers: dict[int, Callable[[Any], Any]] = {
            _PRODUCE: self._produce,
            _FETCH: self._fetch,
            2: self._list_offsets,
            3: self._metadata,
            18: self._api_versions,
            19: self._create_topics,
            20: self._delete_topics,
            22: self._init_producer_id,
        }

    def run(self) -> None:
        with socket.create_server((HOST, self._port), backlog=128) as listening:
            threading.Thread(target=self._answer_late, daemon=True).start()
            while True:
                peer, _ = listening.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        view = memoryview(bytearray(_BUFFER))
        start = end = 0
        with peer:
            while True:
                count = peer.recv_into(view[end:])
                if not count:
                    return
                end += count
                while end - start >= 4:
                    (size,) = struct.unpack_from(">i", view, start)
                    if end - start - 4 < size:
                        break
                    self._answer(peer, view[start + 4 : start + 4 + size])
                    start += 4 + size
                view[: end - start] = view[start:end]
                start, end = 0, end - start

    def _answer(self, peer: socket.socket, frame: memoryview) -> None:
        api_key, version, correlation_id, _, at = decode_request_header(frame)
        request, _ = request_class(api_key).decode(frame, at, version)
        if api_key == _FETCH:
            fetch = partial(self._try_fetch, peer, request, version, correlation_id)
            if not fetch():
                with self._lock:
                    self._parked.append(fetch)
            return
        self._send(peer, self._answers[api_key](request), version, correlation_id)
        if api_key == _PRODUCE and self._parked:
            self._try_parked(late=False)

    def _try_parked(self, *, late: bool) -> None:
        with self._lock:
            waiting, self._parked = self._parked, []
            self._parked += [fetch for fetch in waiting if not fetch(late=late)]

    def _answer_late(self) -> None:
        """Whoever has waited for half a second or a little less gets what there is."""
        while True:
            time.sleep(_PATIENCE_S)
            self._try_parked(late=True)

    def _try_fetch(
        self, peer: socket.socket, request: Any, version: int, correlation_id: int, *, late: bool = False
    ) -> bool:
        response, found = self._fetch(request)
        if not found and request.max_wait_ms and not late:
            return False
        with contextlib.suppress(OSError):  # whoever asked may be gone
            self._send(peer, response, version, correlation_id)
        return True

    @staticmethod
    def _send(peer: socket.socket, response: Any, version: int, correlation_id: int) -> None:
        run: list[bytes] = []
        for piece in encode_response(response, version, correlation_id):
            if isinstance(piece, Region):
                peer.sendall(b"".join(run), MORE_FOLLOWS)
                piece.send(peer)
                run = []
            else:
                run.append(piece)
        peer.sendall(b"".join(run))

    def _produce(self, request: Any) -> ProduceResponse:
        topics = []
        for data in request.topic_data:
            topic = self._topics[data.name] if data.name else self._by_id[data.topic_id]
            partitions = [
                PartitionProduceResponse(part.index, 0, topic.partitions[part.index].take(part.records), -1, 0)
                for part in data.partition_data
            ]
            topics.append(TopicProduceResponse(data.name, data.topic_id, partitions))
        return ProduceResponse(topics)

    def _fetch(self, request: Any) -> tuple[FetchResponse, bool]:
        left, topics, found = request.max_bytes, [], False
        for asked in request.topics:
            topic = self._topics[asked.topic] if asked.topic else self._by_id[asked.topic_id]
            partitions = []
            for part in asked.partitions:
                partition = topic.partitions[part.partition]
                region = partition.find(part.fetch_offset, min(left, part.partition_max_bytes)) if left > 0 else None
                left -= len(region) if region is not None else 0
                found = found or region is not None
                data = PartitionData(part.partition, 0, partition.end, partition.end, 0)
                data.records = b"" if region is None else region  # a piece is whatever has a length
                partitions.append(data)
            topics.append(FetchableTopicResponse(asked.topic, asked.topic_id, partitions))
        return FetchResponse(0, 0, 0, topics), found

    def _list_offsets(self, request: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            0,
            [
                ListOffsetsTopicResponse(
                    asked.name,
                    [
                        ListOffsetsPartitionResponse(part.partition_index, 0, -1, self._offset(asked.name, part), 0)
                        for part in asked.partitions
                    ],
                )
                for asked in request.topics
            ],
        )

    def _offset(self, topic: str, part: Any) -> int:
        return self._topics[topic].partitions[part.partition_index].end if part.timestamp != _EARLIEST else 0

    def _metadata(self, request: Any) -> MetadataResponse:
        names = list(self._topics) if request.topics is None else [asked.name for asked in request.topics]
        broker = MetadataResponseBroker(1, HOST, self._port)
        return MetadataResponse(0, [broker], "floor", 1, [self._described(name) for name in names])

    def _described(self, name: str) -> MetadataResponseTopic:
        topic = self._topics.get(name)
        if topic is None:
            return MetadataResponseTopic(_UNKNOWN_TOPIC, name)
        count = len(topic.partitions)
        partitions = [MetadataResponsePartition(0, index, 1, 0, [1], [1]) for index in range(count)]
        return MetadataResponseTopic(0, name, topic.id, partitions=partitions)

    def _api_versions(self, _: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse(0, [ApiVersion(key, APIS[key].min_version, _newest(key)) for key in self._answers])

    def _create_topics(self, request: Any) -> CreateTopicsResponse:
        for asked in request.topics:
            topic = Topic(asked.name, asked.num_partitions, self._folder)
            self._topics[topic.name] = self._by_id[topic.id] = topic
        return CreateTopicsResponse(0, [CreatableTopicResult(asked.name) for asked in request.topics])

    def _delete_topics(self, request: Any) -> DeleteTopicsResponse:
        names = [*(request.topic_names or []), *(state.name for state in request.topics or [])]
        for name in names:
            topic = self._topics.pop(name)
            del self._by_id[topic.id]
            topic.remove()
        return DeleteTopicsResponse(0, [DeletableTopicResult(name) for name in names])

    def _init_producer_id(self, _: Any) -> InitProducerIdResponse:
        self._producers += 1
        return InitProducerIdResponse(0, 0, self._producers, 0)


def _newest(key: int) -> int:
    return 5 if key == 22 else APIS[key].max_version  # as both brokers: InitProducerId v6 is not released


if __name__ == "__main__":
    FloorServer(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None).run()
