"""One driver for each checkpoint: a transactional id of the cluster is the lock, and its producer epoch is the fence.

The holder raises the epoch every `HEARTBEAT_S` with InitProducerId, under the epoch that it has (KIP-360). A second driver
that sees a live holder is refused. If the holder is gone, the second driver takes the id, and the coordinator refuses the
next heartbeat of the old driver, which then stops. A file beside the checkpoint names the holder, for the error text; no
decision about the fence depends on that file.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from types import TracebackType
from typing import Any, Self

from ottla.client.cluster import TRANSACTION, Cluster
from ottla.client.errors import ClientError
from ottla.client.settings import ClientSettings
from ottla.client.transactions import describe_transaction
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import HOLDER, Checkpoint
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse
from ottla.system.processes import started_at

HEARTBEAT_S = 2.0
WATCH_S = 3.5 * HEARTBEAT_S
"""A holder on a different machine that raises no epoch for this long is gone."""
_log = get_logger(__name__)
_VERSION = 1
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_TRANSACTION_TIMEOUT_MS = 60_000
_CLOCK_SLACK_S = 10.0

_held: set[str] = set()
"""Transactional ids of the locks of this process."""


class DriverFenced(UserError):
    """A different driver has taken the checkpoint."""


class DriverLock:
    def __init__(self, settings: ClientSettings, checkpoint: Checkpoint, checkpoint_id: str) -> None:
        self._cluster = Cluster(settings)
        self._checkpoint = checkpoint
        self._holder_file = f"{checkpoint.folder}/{HOLDER}"
        self._transactional_id = f"ottla-pipeline-{checkpoint_id}"
        self._producer = (-1, -1)
        self._id = uuid.uuid4().hex
        self._ended = threading.Event()
        self._fenced = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="ottla-driver-lock", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._refuse_second()
            self._raise_epoch()
        except (KafkaError, ClientError) as problem:
            self._cluster.close()
            raise UserError(
                f"the lock of the checkpoint {self._checkpoint.folder} cannot be taken: {problem}; it is the "
                f"transactional id {self._transactional_id}"
            ) from problem
        except UserError:
            self._cluster.close()
            raise
        _held.add(self._transactional_id)
        try:
            self._write_holder(running=True)
        except UserError:
            _held.discard(self._transactional_id)
            self._cluster.close()
            raise
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._heart.join(30)
        self._cluster.close()
        _held.discard(self._transactional_id)
        with contextlib.suppress(UserError):  # a full disk: the error of the run matters more
            # A driver that was fenced may not have noticed: the file of its successor stays.
            if not self._fenced.is_set() and self._holder().get("id") == self._id:
                self._write_holder(running=False)

    def check(self) -> None:
        """DriverFenced if a different driver has taken the checkpoint."""
        if self._fenced.is_set():
            raise DriverFenced(
                f"{_words(self._holder())} has taken the checkpoint {self._checkpoint.folder}: this process stops"
            )

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            try:
                self._raise_epoch()
            except KafkaError as problem:
                if problem.code in _FENCED:
                    self._fenced.set()
                    return
            except ClientError:
                continue  # no broker answers: the queries report that, and the next beat asks again
            except Exception as problem:  # noqa: BLE001 - a supervisor: a heart that stops lets a second driver in
                _log.error("driver_lock.beat_failed", reason=str(problem))

    def _raise_epoch(self) -> None:
        """Without a producer this takes the id from every earlier holder; with one it fails if the id was taken."""

        def attempt(deadline: float) -> tuple[int, int]:
            request = InitProducerIdRequest(
                transactional_id=self._transactional_id,
                transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
            )
            _, _, node = self._cluster.coordinator(self._transactional_id, TRANSACTION, deadline)
            answer = self._cluster.node(node, deadline).call(request, InitProducerIdResponse, deadline)
            code = ErrorCode(answer.error_code)
            if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # asked again
            if code != ErrorCode.NONE:
                raise KafkaError(code)
            return answer.producer_id, answer.producer_epoch

        self._producer = self._cluster.retried("initProducerId", attempt)

    def _refuse_second(self) -> None:
        """UserError if the holder runs: on this machine by its process, elsewhere by its heartbeat."""
        holder = self._holder()
        if not holder.get("running"):
            if self._is_last(holder):
                return
            holder = {"running": True}
        if holder.get("host") == socket.gethostname() and holder.get("pid") == os.getpid():
            lives = self._transactional_id in _held
        elif holder.get("host") == socket.gethostname():
            born = started_at(int(holder["pid"]))
            lives = born is not None and abs(born - float(holder.get("started") or born)) < _CLOCK_SLACK_S
        else:
            lives = self._hears_holder()
        if lives:
            raise UserError(
                f"the checkpoint {self._checkpoint.folder} is in use by {_words(holder)}: stop that one, or give this one "
                "other --checkpoints"
            )

    def _is_last(self, holder: dict[str, Any]) -> bool:
        """Whether no driver has taken the id since the holder noted its end. A file of an earlier version has no epoch."""
        producer = holder.get("producer")
        return producer is None or self._epoch() in (None, tuple(producer))

    def _hears_holder(self) -> bool:
        before = self._epoch()
        deadline = time.monotonic() + WATCH_S
        while time.monotonic() < deadline:
            if self._epoch() != before:
                return True
            time.sleep(HEARTBEAT_S / 4)
        return False

    def _epoch(self) -> tuple[int, int] | None:
        try:
            _, state = describe_transaction(self._cluster, self._transactional_id)
        except KafkaError as problem:
            if problem.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise
        return state.producer_id, state.producer_epoch

    def _holder(self) -> dict[str, Any]:
        """Empty without a file. A damaged file means an unknown holder that may run: its heartbeat decides."""
        text = self._checkpoint.files.read(self._holder_file)
        try:
            holder = {} if text is None else json.loads(text)
        except ValueError:
            holder = None
        return holder if isinstance(holder, dict) else {"running": True}

    def _write_holder(self, *, running: bool) -> None:
        pid = os.getpid()
        facts = {
            "version": _VERSION, "id": self._id, "host": socket.gethostname(), "pid": pid, "started": started_at(pid),
            "running": running, "producer": self._producer,
        }  # fmt: skip
        self._checkpoint.files.write(self._holder_file, json.dumps(facts))


def _words(holder: dict[str, Any]) -> str:
    if holder.get("host") == socket.gethostname():
        return f"process {holder.get('pid', '?')}"
    return f"process {holder.get('pid', '?')} on {holder.get('host', 'a different machine')}"
