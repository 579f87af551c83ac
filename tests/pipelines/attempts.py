"""Writers of table outputs without Spark, pickled as Spark does it: built on the driver, sent to tasks and to the commit."""

from __future__ import annotations

import importlib
import itertools
import pickle

import pyarrow as pa

from ottla.connect.sinks.base import Work
from ottla.pipelines.outputs.writer import TableWriter

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


class Attempt:
    """Spark's context of a task: every attempt has a number of its own."""

    _numbers = itertools.count()
    task = 0

    def __init__(self):
        self._number = next(self._numbers)

    def partitionId(self):
        return Attempt.task

    def taskAttemptId(self):
        return self._number


def batch(*numbers, schema=SCHEMA):
    return pa.RecordBatch.from_pydict({"n": list(numbers), "word": [f"w{int(n) % 2}" for n in numbers]}, schema)


def output(kind, *, overwrite=False, **options):
    return importlib.import_module(f"ottla.pipelines.outputs.{kind}").make(options, overwrite=overwrite)


def writer(kind, version, schema=SCHEMA, *, application="app/1", overwrite=False, **options):
    work = Work(application=application, version=version, note={"ottla.offsets": f"{version}"})
    return pickle.loads(pickle.dumps(TableWriter(output(kind, overwrite=overwrite, **options), schema, work)))


def stage(made, *rows, task=0):
    Attempt.task = task
    try:
        return pickle.loads(pickle.dumps(made.write(iter(rows))))
    finally:
        Attempt.task = 0


def run(kind, version, *tasks, schema=SCHEMA, **options):
    made = writer(kind, version, schema, **options)
    made.commit([stage(made, *rows, task=number) for number, rows in enumerate(tasks)])
