"""meta.properties of a node's two log directories in variants, and whether Apache Kafka 4.3.1 starts on them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
_IDS = ("AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw")


class Variant(NamedTuple):
    lines: str
    """Of the second directory."""
    starts: bool
    refused_here: bool = False
    """Kafka starts without a directory whose file it cannot read; Ottla does not start (docs/differences.md)."""
    both: bool = False
    """The first directory has the same lines; otherwise it has the lines of its format."""


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


_V1, _NODE, _CLUSTER, _DIRECTORY = "version=1", "node.id=1", f"cluster.id={CLUSTER}", "directory.id={directory}"
VARIANTS = {
    "as formatted": Variant(_lines(_V1, _NODE, _CLUSTER, _DIRECTORY), starts=True),
    "unknown keys": Variant(_lines(_V1, _NODE, _CLUSTER, _DIRECTORY, "rack=r", "broker.id=7"), starts=True),
    "another order, blanks": Variant(_lines("", f" {_CLUSTER}", "node.id : 1", _V1, _DIRECTORY), starts=True),
    "no directory.id": Variant(_lines(_V1, _NODE, _CLUSTER), starts=True),
    "no version": Variant(_lines(_NODE, _CLUSTER, _DIRECTORY), starts=False),
    "no version, broker.id": Variant(_lines("broker.id=1", _CLUSTER, _DIRECTORY), starts=True),
    "version 0, broker.id": Variant(_lines("version=0", "broker.id=1", _CLUSTER, _DIRECTORY), starts=True, both=True),
    "version 0, another broker.id": Variant(_lines("version=0", "broker.id=2", _CLUSTER, _DIRECTORY), starts=False),
    "version 0, no cluster.id": Variant(_lines("version=0", "broker.id=1", _DIRECTORY), starts=False),
    "version 2": Variant(_lines("version=2", _NODE, _CLUSTER, _DIRECTORY), starts=True, refused_here=True),
    "version that is no number": Variant(
        _lines("version=one", _NODE, _CLUSTER, _DIRECTORY), starts=True, refused_here=True
    ),
    "no node.id": Variant(_lines(_V1, _CLUSTER, _DIRECTORY), starts=True, refused_here=True),
    "another node.id": Variant(_lines(_V1, "node.id=2", _CLUSTER, _DIRECTORY), starts=False),
    "a negative node.id": Variant(_lines(_V1, "node.id=-1", _CLUSTER, _DIRECTORY), starts=False),
    "no cluster.id": Variant(_lines(_V1, _NODE, _DIRECTORY), starts=True, refused_here=True),
    "another cluster.id": Variant(_lines(_V1, _NODE, "cluster.id=AAAAAAAAAAAAAAAAAAAAAQ", _DIRECTORY), starts=False),
    "the first one's directory.id": Variant(_lines(_V1, _NODE, _CLUSTER, f"directory.id={_IDS[0]}"), starts=False),
    "a reserved directory.id": Variant(
        _lines(_V1, _NODE, _CLUSTER, "directory.id=AAAAAAAAAAAAAAAAAAAAAQ"), starts=False
    ),
    "a directory.id that is none": Variant(
        _lines(_V1, _NODE, _CLUSTER, "directory.id=x"), starts=True, refused_here=True
    ),
    "a blank behind cluster.id": Variant(_lines(_V1, _NODE, f"{_CLUSTER} ", _DIRECTORY), starts=False),
    "empty": Variant("", starts=False),
}


def write(directories: tuple[Path, Path], variant: Variant) -> None:
    formatted = VARIANTS["as formatted"].lines
    for path, directory, lines in zip(
        directories, _IDS, (variant.lines if variant.both else formatted, variant.lines), strict=True
    ):
        path.mkdir(parents=True, exist_ok=True)
        (path / "meta.properties").write_text(lines.format(directory=directory))
