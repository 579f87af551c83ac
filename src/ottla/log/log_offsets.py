"""The offsets of one log and the rules between them.

log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, recovery_point <= log_end_offset. An append
moves the log end offset, a flush the recovery point, compaction `cleaned_up_to`; every other change is a method here.
Nothing here touches a file: the caller writes what must be on disk before an offset goes back.
"""

from __future__ import annotations

from ottla.log.producer_state import ProducerState
from ottla.model.ids import Offset


class LogOffsets:
    __slots__ = (
        "_producers",
        "cleaned_up_to",
        "first_unstable_offset",
        "generation",
        "high_watermark",
        "is_cut",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
    )

    def __init__(
        self,
        producers: ProducerState,
        *,
        log_end_offset: Offset,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
    ) -> None:
        self._producers = producers
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        """A sync has covered everything below this offset; `recovery-point-offset-checkpoint` stores it."""
        self.cleaned_up_to: Offset = 0
        """Compaction has cleaned everything below this offset; `cleaner-offset-checkpoint` stores it."""
        self.is_cut = False
        """The files were cut since the last sync: a sync must cover the last segment, also without new records."""
        self.first_unstable_offset = producers.first_unstable_offset()
        """-1 without a transaction that is open or not yet replicated."""
        self.generation = 0
        """Counts truncations: a sync that began before a truncation does not cover bytes written after the truncation,
        and records read before the truncation may have left the log.
        """

    @property
    def last_stable_offset(self) -> Offset:
        """What read_committed may see: below the first open transaction and the high watermark."""
        first = self.first_unstable_offset
        if 0 <= first < self.high_watermark:
            return max(first, self.log_start_offset)
        return self.high_watermark

    def producers_changed(self) -> None:
        self.first_unstable_offset = self._producers.first_unstable_offset()

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Move the high watermark to `offset`, within the log; True when it changed. The high watermark goes back only
        by truncation or when a new leader sends a lower one.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        if self.first_unstable_offset >= 0:
            self._producers.replicated_up_to(offset)
            self.first_unstable_offset = self._producers.first_unstable_offset()
        return True

    def advance_log_start_offset(self, offset: Offset) -> None:
        """The caller has checked that `offset` is above the log start offset and not above the high watermark."""
        self.log_start_offset = offset
        self._producers.replicated_up_to(offset)
        self.producers_changed()

    def truncate_to(self, offset: Offset) -> None:
        """The log ends at `offset`, which is below its former end. The truncation changes the producers later."""
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.cleaned_up_to = min(self.cleaned_up_to, offset)
        self.is_cut = True
        self.generation += 1

    def start_over_at(self, offset: Offset, log_start_offset: Offset) -> None:
        """The log is empty and goes on at `offset`."""
        self.log_end_offset = self.recovery_point = offset
        self.log_start_offset = self.high_watermark = log_start_offset
        self.cleaned_up_to = 0
        self.is_cut = True
        self.generation += 1

    def flushed(self, offset: Offset, generation: int) -> None:
        """A sync that began in `generation` has covered everything below `offset`. After a truncation the recovery point
        stays: the sync does not cover the new content.
        """
        if generation == self.generation:
            self.recovery_point = max(self.recovery_point, offset)
            self.is_cut = False
