"""A controller process and peers that have no right, lie, or speak a newer release: it refuses and keeps running."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID
from ottla.protocol.api import decode_request_header, encode_response, request_class
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.protocol.generated.fetch_response import FetchResponse
from ottla.protocol.generated.vote_request import PartitionData, TopicData, VoteRequest
from ottla.protocol.generated.vote_response import VoteResponse
from tests.quorum.members import CLUSTER_ID, Member, running, static_quorum, until
from tests.support.ports import free_ports

UNKNOWN_CODE = 9999


def vote(epoch: int) -> VoteRequest:
    partition = PartitionData(0, epoch, 2, ZERO_UUID, ZERO_UUID, 0, 0, False)
    return VoteRequest(CLUSTER_ID, 1, [TopicData(METADATA_TOPIC, [partition])])


def test_before_the_acls_are_loaded_no_peer_changes_the_epoch(tmp_path: Path) -> None:
    """The only running voter of three has no committed metadata, so it has no ACLs either."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:nodes",
    }
    member = static_quorum(tmp_path, **authorizer)[0]
    with running([member]):
        response = until(lambda: member.ask(vote(1000), timeout_ms=5_000))
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "epoch=1000" not in member.log()


class StrangeVoter:
    """Answers ApiVersions as a controller does, and all else with an error code that no release has."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.answered: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while len(size := file.read(4)) == 4:
                api_key, version, correlation_id, _, _ = decode_request_header(file.read(struct.unpack(">i", size)[0]))
                response = self._response(api_key)
                connection.sendall(b"".join(map(bytes, encode_response(response, version, correlation_id))))
                self.answered.append(type(response).__name__)

    @staticmethod
    def _response(api_key: int) -> Any:
        if api_key == ApiKey.API_VERSIONS:
            served = [ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.VOTE]
            kinds = {key: request_class(key) for key in served}
            return ApiVersionsResponse(0, [ApiVersion(k, c.MIN_VERSION, c.MAX_VERSION) for k, c in kinds.items()])
        kind = FetchResponse if api_key == ApiKey.FETCH else VoteResponse
        return kind(error_code=UNKNOWN_CODE)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def strange_voter(port: int) -> Iterator[StrangeVoter]:
    voter = StrangeVoter(port)
    try:
        yield voter
    finally:
        voter.close()


def test_an_error_code_of_a_newer_release_does_not_stop_a_controller(tmp_path: Path) -> None:
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    member = Member(tmp_path / "1", 1, ports)
    member.format()
    with strange_voter(ports[2]) as voter, running([member]):
        until(lambda: {"FetchResponse", "VoteResponse"} <= {*voter.answered})
        refused = len(voter.answered) + 4
        until(lambda: len(voter.answered) > refused)
        assert member.running, member.log()[-3000:]
        assert "Traceback" not in member.log()
