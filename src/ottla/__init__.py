"""Ottla: a partitioned, replicated commit log that speaks Apache Kafka's protocol."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.frames.reading import read
    from ottla.frames.writing import write

__version__ = "0.1.0"
__all__ = ["__version__", "read", "write"]


def __getattr__(name: str) -> Any:
    """Imports `read` and `write` with their first use: `import ottla` stays cheap."""
    if name == "read":
        from ottla.frames.reading import read

        return read
    if name == "write":
        from ottla.frames.writing import write

        return write
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
