"""What a step's function imports inside of a task."""

from __future__ import annotations

RATE = 3


def priced(n: int) -> str:
    return str(RATE * n)


def python_of_the_task() -> str:
    """The prefix of the Python that runs the task, and whether its Ottla came in no zip of a driver."""
    import sys

    import ottla

    return sys.prefix if ".zip" in str(ottla.__file__) else f"{sys.prefix} with an Ottla"


def of_the_archive() -> str:
    """Only the Python of a shipped environment has this module."""
    import only_in_the_archive  # type: ignore[import-not-found]

    return str(only_in_the_archive.WORD)
