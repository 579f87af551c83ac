"""A copy of a folder that a node writes into meanwhile: files that it renames or deletes are there or not."""

from __future__ import annotations

import shutil
import time
from pathlib import Path


def copy_live(source: Path, target: Path, seconds: float = 60) -> None:
    """One in which nothing was missed that was listed."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            shutil.copytree(source, target)
        except (shutil.Error, FileNotFoundError):
            if time.monotonic() > deadline:
                raise
            shutil.rmtree(target, ignore_errors=True)
        else:
            return
