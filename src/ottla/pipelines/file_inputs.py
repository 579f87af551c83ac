"""Input tables of files (`spark_table("csv", ...)`): Spark lists their files once, here they are listed again.

Spark lists the files of a folder when a DataFrame is made. A stream that joins the folder would see a new file at its next
start only. The index of the files belongs to the plan of the query, so the next micro-batch reads the files of the newest
listing. Delta, Iceberg and JDBC have no such index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from ottla.pipelines.checkpoints import is_object_store

LISTED_S, LISTED_IN_STORES_S = 1.0, 10.0
"""Between two listings of a folder. A listing in an object store costs requests."""
_PAUSES = 9.0
"""A pause has this many times the length of the listing before: listings take a tenth of the time at most."""
_INDEX = "InMemoryFileIndex"


@dataclass(slots=True, kw_only=True)
class _Listing:
    roots: list[Any]
    """Hadoop's paths of the folders."""
    conf: Any
    index: Any
    """Spark's own, in the JVM."""
    due: float
    warning: str = ""

    @property
    def place(self) -> str:
        return ", ".join(map(str, self.roots))

    def refresh(self) -> str:
        """What prevents a listing; empty after a listing. Spark itself lists a missing folder as an empty table."""
        try:
            for root in self.roots:
                if not root.getFileSystem(self.conf).exists(root):
                    return f"{root} does not exist"
            self.index.refresh()
        except Py4JJavaError as problem:
            return str(problem.java_exception.getMessage()).splitlines()[0]
        return ""


class FileInputs:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listings: list[_Listing] = []

    def add(self, frames: Iterable[DataFrame]) -> None:
        """Frames of inputs, as Spark has just made them. A Spark Connect client has no plans: its tables stay as they are."""
        for frame in frames:
            if not is_remote():
                self._add(frame)

    def _add(self, frame: DataFrame) -> None:
        java = frame._jdf  # noqa: SLF001 - PySpark's only way to plans
        leaves = java.queryExecution().analyzed().collectLeaves()
        for number in range(leaves.length()):
            index = _file_index(leaves.apply(number))
            if index is not None:
                paths = index.rootPaths()
                roots = [paths.apply(position) for position in range(paths.length())]
                conf = java.sparkSession().sessionState().newHadoopConf()
                due = self._clock() + _interval_s(roots)
                self._listings.append(_Listing(roots=roots, conf=conf, index=index, due=due))

    def refresh(self, warnings: list[str]) -> None:
        """Lists what is due. A folder that cannot be listed keeps its files, and `warnings` has a sentence meanwhile."""
        for listing in self._listings:
            begun = self._clock()
            if begun < listing.due:
                continue
            if listing.warning in warnings:
                warnings.remove(listing.warning)
            reason = listing.refresh()
            listing.warning = (
                reason and f"the files of {listing.place} cannot be listed, the last list counts: {reason}"
            )
            if reason:
                warnings.append(listing.warning)
            ended = self._clock()
            listing.due = ended + max(_interval_s(listing.roots), _PAUSES * (ended - begun))


def _file_index(leaf: Any) -> Any:
    """None for a leaf of a plan that is no table of files."""
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    index = relation.location()
    return index if index.getClass().getSimpleName() == _INDEX else None


def _interval_s(roots: list[Any]) -> float:
    return LISTED_IN_STORES_S if any(is_object_store(str(root)) for root in roots) else LISTED_S
