"""The examples by name: what each of them shows, and where its files are."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from ottla.examples.outputs import Outputs

FILES = ("pipeline.py", "feeder.py", "check.py")


class InputEvent(NamedTuple):
    """A record for the log: a value becomes JSON, bytes stay as they are."""

    topic: str
    key: str
    value: dict[str, Any] | bytes


class Panel(NamedTuple):
    """A table of the terminal view. Titles of columns with numbers begin with `>`."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    name: str
    sentence: str
    default_events: int = 20_000

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / self.name

    @property
    def topics(self) -> Mapping[str, int]:
        """The input topics, with their numbers of partitions."""
        topics: Mapping[str, int] = self._module("feeder").TOPICS
        return topics

    def events(self, count: int) -> Iterator[InputEvent]:
        events: Callable[[int], Iterator[InputEvent]] = self._module("feeder").events
        return events(count)

    def expected(self, events: Iterable[InputEvent]) -> dict[str, Any]:
        """The results by name, computed without Spark."""
        results: dict[str, Any] = self._module("check").expected(events)
        return results

    def results(self, outputs: Outputs) -> dict[str, Any]:
        """The same results, read from what the pipeline wrote."""
        results: dict[str, Any] = self._module("check").results(outputs)
        return results

    def panels(self, outputs: Outputs) -> list[Panel]:
        panels: Iterable[Panel] = self._module("check").panels(outputs)
        return list(panels)

    def copy_to(self, folder: str) -> Path:
        """The files of the example in a new folder."""
        target = Path(folder) / self.name
        if target.exists():
            raise UserError(f"{target} exists already: name a different folder")
        target.mkdir(parents=True)
        for name in FILES:
            shutil.copyfile(self.folder / name, target / name)
        return target

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"ottla.examples.{self.name}.{name}")


EXAMPLES = {
    example.name: example
    for example in (
        Example(name="bigdata", sentence="A batch view and a speed view over one log, equal at the end."),
        Example(name="census", sentence="The population at any time, from a log of births and deaths."),
        Example(name="films", sentence="Where viewers stopped, what they like, and the next film to show."),
        Example(name="logs", sentence="Logs and metrics of many machines: a lake, alerts and a dashboard."),
        Example(name="taxis", sentence="Riders get the closest free driver, at a price by demand."),
        Example(name="thermostats", sentence="Readings of rooms, and a controller that switches devices."),
    )
}


def example_of(name: str) -> Example:
    if name not in EXAMPLES:
        raise UserError(f"there is no example {name!r}: use {', '.join(EXAMPLES)}")
    return EXAMPLES[name]
