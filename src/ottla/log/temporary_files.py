"""What a crash leaves in a partition folder, put in order before anything is loaded.

`.deleted` goes. `.cleaned` is an unfinished compaction and goes, with every `.swap` at or after it. The remaining
`.swap` files are a finished compaction: what they replace goes and they take its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.env.logging import get_logger
from ottla.log.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, base_offset_of
from ottla.log.log_directory import LogDirectory
from ottla.log.segment import Segment

_log = get_logger(__name__)
_TEMPORARY = ".tmp"


def tidy(log_dir: LogDirectory, directory: str) -> Sequence[str]:
    """The names of the files that remain, sorted."""
    names = log_dir.storage.list_dir(directory)
    if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, _TEMPORARY)) for name in names):
        return names
    swaps = _remove_temporary(log_dir, directory, names)
    if swaps:
        _finish_swap(log_dir, directory, swaps)
    return log_dir.storage.list_dir(directory)


def _remove_temporary(log_dir: LogDirectory, directory: str, names: Sequence[str]) -> list[str]:
    """Remove what cannot be used; the usable `.swap` files are returned."""
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    first_cleaned = min((base for name in cleaned if (base := base_offset_of(name)) is not None), default=None)
    swaps = []
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            base = base_offset_of(name)
            if base is not None and (first_cleaned is None or base < first_cleaned):
                swaps.append(name)
                continue
        elif not name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, _TEMPORARY)):
            continue
        _log.debug("temporary_file.removed", path=f"{directory}/{name}")
        log_dir.storage.remove(f"{directory}/{name}")
    return swaps


def _finish_swap(log_dir: LogDirectory, directory: str, swaps: list[str]) -> None:
    storage = log_dir.storage
    low, high = None, -1
    for name in swaps:
        base = base_offset_of(name)
        if base is None or not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            continue
        size = storage.size(f"{directory}/{name}")
        segment = Segment(storage, log_dir.open_files, directory, base, size=size, suffix=SWAP_SUFFIX)
        low = base if low is None else min(low, base)
        high = max(high, segment.read_next_offset())
        segment.forget()
    if low is not None:
        for name in storage.list_dir(directory):
            base = base_offset_of(name)
            if base is not None and low <= base < high and not name.endswith(SWAP_SUFFIX):
                storage.remove(f"{directory}/{name}")
    for name in swaps:
        _log.info("swap.finished", path=f"{directory}/{name}")
        storage.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
