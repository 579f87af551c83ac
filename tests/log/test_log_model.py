"""The log against a list: any sequence of appends, reads, truncations, deletions and restarts agrees with it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.log.removed import carried_out

from ottla.env import logging
from ottla.env.config import TopicConfig
from ottla.log.retention import delete_old_segments
from ottla.model.errors import ErrorCode, KafkaError

from .partition_files import NOW, batch, new_log, read_all, reload, values

CONFIG = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=600, index_interval_bytes=120)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        logging.configure(level="error")
        self.directory = tempfile.mkdtemp()
        self.log = new_log(Path(self.directory), CONFIG)
        self.batches: list[list[tuple[int, bytes | None]]] = []
        """The records of each batch that is in the log."""
        self.epoch = 0
        self.epochs: dict[int, int] = {}
        self.sequence = 0
        self.counter = 0

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.log.forget()
            shutil.rmtree(self.directory)

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def expected(self) -> list[tuple[int, bytes | None]]:
        return [pair for pairs in self.batches for pair in pairs]

    @rule(count=st.integers(1, 4), size=st.integers(0, 80), idempotent=st.booleans(), new_epoch=st.booleans())
    def append(self, count: int, size: int, idempotent: bool, new_epoch: bool) -> None:
        self.epoch += new_epoch
        contents = []
        for _ in range(count):
            self.counter += 1
            contents.append(b"%d:" % self.counter + b"x" * size)
        facts = {"producer_id": 5, "epoch": 0, "sequence": self.sequence} if idempotent else {}
        data = batch(*contents, timestamp=NOW + self.counter, **facts)
        first = self.end
        result = self.log.append_as_leader(bytearray(data), leader_epoch=self.epoch, now_ms=NOW)
        assert (result.first_offset, result.last_offset) == (first, first + count - 1)
        self.batches.append([(first + index, content) for index, content in enumerate(contents)])
        self.epochs.setdefault(self.epoch, first)
        if idempotent:
            self.sequence += count
            again = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=NOW)
            assert again.duplicate
            assert (again.first_offset, again.last_offset) == (first, first + count - 1)
        self.log.advance_high_watermark(self.end)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.integers(1, 2000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        start = data.draw(st.integers(self.log.log_start_offset, self.end))
        limit = data.draw(st.integers(start, self.end))
        piece = self.log.read(start, max_bytes, max_offset=limit)
        found = values(piece.read())
        whole = [pairs for pairs in self.batches if pairs[-1][0] >= start]
        below = [pairs for pairs in whole if pairs[-1][0] < limit]
        assert found == [pair for pairs in below for pair in pairs][: len(found)]
        if below:
            assert found
        assert piece.length <= max_bytes or len(found) == len(below[0])

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.batches)))
        offset = self.batches[keep][0][0] if keep < len(self.batches) else self.end
        if offset < self.log.log_start_offset:
            return
        dropped = [pair for pairs in self.batches[keep:] for pair in pairs]
        self.log.truncate_to(offset, NOW)
        del self.batches[keep:]
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < offset}
        if dropped:
            # What the producer knows is gone with its records: it goes on where the log now says.
            producer = next(iter(self.log.producers.active()), None)
            self.sequence = producer.last_sequence + 1 if producer is not None else 0
        self.log.advance_high_watermark(self.end)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.end))
        self.log.advance_log_start_offset(offset)
        delete_old_segments(self.log, NOW)
        carried_out(self.log.log_dir.removals(NOW + 10**9))
        self.batches = [pairs for pairs in self.batches if pairs[-1][0] >= offset]

    @rule(clean=st.booleans(), flushed=st.booleans())
    def restart(self, clean: bool, flushed: bool) -> None:
        if flushed:
            self.log.flush(NOW)
        recovery_point = self.log.recovery_point
        if clean:
            self.log.close()
        before = self.log
        producers = {producer.producer_id: producer.last_sequence for producer in before.producers.active()}
        newest = before.offset_of_max_timestamp()
        before.forget()
        self.log = reload(before, clean=clean, recovery_point=recovery_point)
        assert self.log.log_start_offset == before.log_start_offset
        assert self.log.log_end_offset == before.log_end_offset
        found = {producer.producer_id: producer.last_sequence for producer in self.log.producers.active()}
        if before.log_start_offset == 0:
            assert found == producers
        self.sequence = found.get(5, -1) + 1
        assert self.log.offset_of_max_timestamp() == newest
        self.log.advance_high_watermark(self.end)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        start = self.log.log_start_offset
        assert read_all(self.log) == [pair for pair in self.expected() if pair[0] >= start]
        starts = {epoch: max(offset, start) for epoch, offset in self.epochs.items()}
        for epoch, offset in self.log.epochs.entries:
            assert starts[epoch] == offset
        for outside in (start - 1, self.end + 1):
            with pytest.raises(KafkaError) as refused:
                self.log.read(outside, 100)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_log_agrees_with_a_list = pytest.mark.timeout(120)(LogMachine.TestCase)
