"""What a kill hit, and how many batches ran a speculative copy: read from checkpoints, staged files and Spark's event logs."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from ottla.connect.sources.sql import read_table
from ottla.model.user_error import UserError
from ottla.pipelines.outputs.sql import make

HOLDER = "ottla.driver.json"
PHASES = ("planned", "staged", "committed")
"""Of a batch that Spark does not have as done: nothing is staged yet, rows are staged, the output has its commit."""


class Progress:
    """The batches of all queries, from the files of their checkpoints. `places` are local folders, also those of a bucket."""

    def __init__(self, checkpoints: Path, places: dict[str, Path], database: str | None = None) -> None:
        self._checkpoints = checkpoints / "copy"
        self._places, self._database = places, database

    def done(self) -> int:
        return sum(len(_numbers(folder / "commits")) for folder in self._queries())

    def in_flight(self, query: str = "") -> dict[str, str]:
        """Query -> phase of its unfinished batch; with a name, of this query only."""
        phases = {}
        for folder in [self._checkpoints / query] if query else self._queries():
            planned, done = _numbers(folder / "offsets"), _numbers(folder / "commits")
            if planned and (not done or max(planned) > max(done)):
                phases[folder.name] = self._phase(folder, max(planned))
        return phases

    def holder(self) -> dict[str, Any]:
        """Which driver has the checkpoints; empty before the first."""
        with suppress(OSError, ValueError):
            return dict(json.loads((self._checkpoints / HOLDER).read_text()))
        return {}

    def write_holder(self, holder: dict[str, Any]) -> None:
        (self._checkpoints / f".{HOLDER}.crc").unlink(missing_ok=True)
        (self._checkpoints / HOLDER).write_text(json.dumps(holder))

    def _queries(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return [entry for entry in self._checkpoints.iterdir() if (entry / "offsets").is_dir()]
        return []

    def _phase(self, query: Path, batch: int) -> str:
        place = self._places.get(query.name)
        with suppress(OSError, ValueError, KeyError, UserError):
            application = f"copy.{query.name}-{json.loads((query / 'metadata').read_text())['id']}"
            if query.name == "to-sql" and self._database:
                return _phase_in_database(self._database, application, batch)
            if place is not None and _committed(place, application) >= batch:
                return "committed"
            if place is not None and _staged(place, application, batch):
                return "staged"
        return "planned"


def _phase_in_database(address: str, application: str, batch: int) -> str:
    reached = make({"url": address, "dbtable": "rows"}, overwrite=False).reached(application)
    if reached is not None and reached >= batch:
        return "committed"
    names = read_table(address, "pg_catalog.pg_tables").column("tablename").to_pylist()
    return "staged" if any(re.match(rf"ottla_[0-9a-f]+_{batch}_", name) for name in names) else "planned"


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def _staged(place: Path, application: str, batch: int) -> bool:
    folders = (f"batches/{application}", f"data/batches/{application}", f"_ottla/staged/{application}")
    return any(any((place / folder / f"{batch:012d}").rglob("*-*")) for folder in folders)


def _committed(place: Path, application: str) -> int:
    """The version of the last commit of a Delta or Iceberg table or of a folder of files; -1 without a commit."""
    note = place / "_ottla" / f"{application}.json"
    if note.exists():
        return int(json.loads(note.read_text())["version"])
    for entry in sorted((place / "_delta_log").glob("*.json"), reverse=True)[:3]:
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if action.get("txn", {}).get("appId") == application:
                return int(action["txn"]["version"])
    metadata = sorted((place / "metadata").glob("*.metadata.json"))
    if metadata:
        return int(json.loads(metadata[-1].read_text())["properties"].get(f"ottla.version.{application}", -1))
    return -1


def speculation(folder: Path) -> dict[str, int]:
    """Counts over all event logs: batches of queries, those with a speculative copy, and how the copies ended."""
    counts: Counter[str] = Counter()
    for path in folder.glob("*"):
        counts += _speculation_of(path)
    return dict(counts)


def _speculation_of(path: Path) -> Counter[str]:
    batches: dict[int, tuple[str, str]] = {}
    """Stage -> query and batch."""
    writing: set[int] = set()
    copied, copied_writes, counts = set(), set(), Counter[str]()
    for event in _events(path):
        if event["Event"] == "SparkListenerJobStart":
            properties = event.get("Properties") or {}
            query, batch = properties.get("sql.streaming.queryId"), properties.get("streaming.sql.batchId")
            if query and batch:
                batches |= dict.fromkeys(event["Stage IDs"], (query, batch))
                writing.add(max(event["Stage IDs"]))
        elif event["Event"] == "SparkListenerTaskStart" and event["Task Info"]["Speculative"]:
            stage = event["Stage ID"]
            if stage in batches:
                copied.add(batches[stage])
                if stage in writing:
                    copied_writes.add(batches[stage])
        elif event["Event"] == "SparkListenerTaskEnd" and event["Task Info"]["Speculative"]:
            counts[f"copies: {event['Task End Reason']['Reason']}"] += 1
    counts["batches"] = len(set(batches.values()))
    counts["batches with a speculative copy"] = len(copied)
    counts["of a task that writes"] = len(copied_writes)
    return counts


def _events(path: Path) -> Any:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if '"SparkListenerJobStart"' in line or '"SparkListenerTask' in line:
                with suppress(ValueError):  # the driver was killed while it wrote this line
                    yield json.loads(line)


def add_to(path: Path, run: dict[str, Any]) -> dict[str, Any]:
    """Appends a run to the file and adds its counts up."""
    stored = json.loads(path.read_text()) if path.exists() else {"runs": []}
    stored["runs"].append(run)
    totals: dict[str, dict[str, Any]] = {}
    for entry in stored["runs"]:
        total = totals.setdefault(
            "S3" if entry["s3"] else "local disk", {"runs": 0, "failed": 0, "rounds": 0, "rows": 0}
        )
        total["runs"] += 1
        total["failed"] += entry["verdict"] != "every input once in every output"
        for name in ("rounds", "rows"):
            total[name] += entry[name]
        for name in ("victims", "hit", "speculation", "events", "seconds_of"):
            total[name] = dict(Counter(total.get(name, {})) + Counter(entry.get(name, {})))
    stored["totals"] = totals
    path.write_text(json.dumps(stored, indent=1, sort_keys=True))
    return totals
