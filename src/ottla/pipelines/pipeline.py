"""A pipeline: pure functions DataFrame -> DataFrame with what they read and write. Nothing here runs anything.

    shop = Pipeline("shop")

    @shop.step(reads={"orders": topic("orders", value="json", schema="id long, total double")},
               writes=topic("large-orders", value="json", key="id"))
    def large(orders):
        return orders.where("total > 1000")

`large` stays a plain function: a test calls it with a tiny DataFrame and no broker.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.model.extras import SPARK, extra_needed
from ottla.model.user_error import UserError
from ottla.pipelines.ports import Port, Topic, TopicTable, View

Function = TypeVar("Function", bound=Callable[..., Any])
OUTPUT_MODES = ("append", "update", "complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    function: Callable[..., Any]
    reads: Mapping[str, Port]
    writes: Mapping[str, Port]
    """By branch; the one branch of a function that returns a single DataFrame is named ""."""
    output_mode: str = "append"
    trigger: str | None = None
    """The pause between batches; by default 1 second, and 10 seconds with checkpoints on an object store."""
    quarantine: str | None = None
    """The topic of rows that fail an expectation with on_fail="quarantine"."""


@dataclass(slots=True)
class Pipeline:
    name: str
    steps: list[Step] = field(default_factory=list)

    def step(
        self,
        *,
        reads: Mapping[str, Port],
        writes: Port | Mapping[str, Port],
        output_mode: str = "append",
        trigger: str | None = None,
        quarantine: str | None = None,
    ) -> Callable[[Function], Function]:
        def declare(function: Function) -> Function:
            outputs = {"": writes} if isinstance(writes, Port) else dict(writes)
            made = Step(
                name=function.__name__.replace("_", "-"),
                function=function,
                reads=dict(reads),
                writes=outputs,
                output_mode=output_mode,
                trigger=trigger,
                quarantine=quarantine,
            )
            self._check(made)
            self.steps.append(made)
            return function

        return declare

    def _check(self, step: Step) -> None:
        where = f"step {step.name} of pipeline {self.name}"
        if any(other.name == step.name for other in self.steps):
            raise UserError(f"{where}: there is already a step of this name")
        parameters = list(inspect.signature(step.function).parameters)
        if sorted(parameters) != sorted(step.reads):
            raise UserError(
                f"{where}: the function has the parameters {parameters}, but reads= names {sorted(step.reads)}: use the same names"
            )
        if step.output_mode not in OUTPUT_MODES:
            raise UserError(f"{where}: output_mode is one of {', '.join(OUTPUT_MODES)}, not {step.output_mode!r}")

    def in_order(self) -> list[Step]:
        """Steps after those that write what they read; a circle is an error."""
        return [step for level in self.levels() for step in level]

    def levels(self) -> list[list[Step]]:
        """Steps that may run side by side, then those that read what they wrote, and so on.

        A step also comes after the dead letters that it reads, but for a step whose letters lead back to itself (a retry).
        """
        left = list(self.steps)
        levels: list[list[Step]] = []
        while left:
            unwritten = {node for step in left for node in output_nodes(step)}
            done = [step for level in levels for step in level]
            letters_done = {letters for step in done for letters in _letters_of(step)}
            unwritten_letters = {
                f"topic:{name}"
                for step in left
                for *_, name in (letters for letters in _letters_of(step) if letters not in letters_done)
            }
            outputs_there = [step for step in left if not _reads_any(step, unwritten)]
            ready = [step for step in outputs_there if not _reads_any(step, unwritten_letters)] or outputs_there
            if not ready:
                raise UserError(
                    f"the steps {', '.join(step.name for step in left)} read each other's outputs in a circle"
                )
            levels.append(ready)
            left = [step for step in left if step not in ready]
        return levels


def _reads_any(step: Step, nodes: Collection[str]) -> bool:
    return any(port.node in nodes for port in step.reads.values())


def _letters_of(step: Step) -> set[tuple[str, str, str]]:
    """The inputs of a step that have a dead-letter topic, with its name. The first reader of an input brings its letters.

    Quarantined rows are letters of the step itself.
    """
    letters = {
        (port.name, repr(port.value), port.dead_letter)
        for port in input_topics(step)
        if port.dead_letter is not None and port.value.kind != "bytes"
    }
    return letters if step.quarantine is None else letters | {(f"step:{step.name}", "", step.quarantine)}


def written_nodes(step: Step) -> list[str]:
    """The outputs of a step, and the topics of its dead letters and of its quarantine."""
    return output_nodes(step) + sorted({f"topic:{name}" for *_, name in _letters_of(step)})


def output_nodes(step: Step) -> list[str]:
    """A view is read by the names of its topic and its table, too."""
    views = [port for port in step.writes.values() if isinstance(port, View)]
    return [
        port.node for port in [*step.writes.values(), *(part for view in views for part in (view.topic, view.delta))]
    ]


def query_name(step: Step, branch: str) -> str:
    """Each output of a step is a query, with a checkpoint of this name."""
    return step.name + (f".{branch}" if branch else "")


def input_topics(step: Step) -> list[Topic]:
    return [
        port.topic if isinstance(port, TopicTable) else port
        for port in step.reads.values()
        if isinstance(port, Topic | TopicTable)
    ]


def load_pipelines(path: str) -> list[Pipeline]:
    """The pipelines of a Python file; the file is run as a module of its own."""
    if not os.path.isfile(path):
        raise UserError(f"there is no file {path}")
    name = os.path.splitext(os.path.basename(path))[0].replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    with extra_needed("a pipeline", SPARK):
        from pyspark.cloudpickle import register_pickle_by_value
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec.loader.exec_module(module)
        # Workers cannot import the file by its name.
        register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    except UserError:
        raise
    except Exception as problem:  # a supervisor: every error of the file is reported with its line
        raise UserError(f"{path}{_line_in(path, problem)}: {type(problem).__name__}: {problem}") from problem
    finally:
        sys.path.pop(0)
        _remember(os.path.dirname(os.path.abspath(path)))
    pipelines = {
        id(value): value for value in vars(module).values() if isinstance(value, Pipeline)
    }  # once by two names
    if not pipelines:
        raise UserError(f"{path} defines no pipeline: make one with Pipeline(NAME) and give it steps")
    names = [pipeline.name for pipeline in pipelines.values()]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path} defines two pipelines named {name}, which would share a checkpoint: rename one")
    return list(pipelines.values())


STEP_FOLDERS: list[str] = []
"""Folders of the files that were loaded: what their steps import later is found there, here and in Spark's workers."""


def _remember(folder: str) -> None:
    """Behind everything else, so that no file of the folder takes the place of an installed module."""
    if folder not in STEP_FOLDERS:
        STEP_FOLDERS.append(folder)
    if folder not in sys.path:
        sys.path.append(folder)


def _line_in(path: str, problem: Exception) -> str:
    """Where in the file it was, as far as it was there."""
    if isinstance(problem, SyntaxError):
        return f", line {problem.lineno}"
    trace, line = problem.__traceback__, 0
    while trace is not None:
        if os.path.abspath(trace.tb_frame.f_code.co_filename) == os.path.abspath(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f", line {line}" if line else ""
