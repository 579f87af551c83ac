"""Thermostats: three streams of readings, and a controller that switches the heating, the dryer and the fan.

A device is on from its lower bound to its upper bound, so that readings around a bound do not switch it all the time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ottla.pipelines import Pipeline, delta, topic, view

TABLES = os.environ.get("OTTLA_TABLES", "tables")
READING = "room string, value double, at timestamp"
READINGS = {
    name: topic(f"user.home.{name}.json", value="json", schema=READING, dead_letter="user.home.readings.dead")
    for name in ("temperature", "humidity", "air")
}
COMMAND = "room string, device string, action string, value double, at timestamp"
COMMANDS = topic("queuing.home.commands.json", value="json", schema=COMMAND, key="room", partitions=2)
DEVICES = {"temperature": ("heating", 21.0, 19.0), "humidity": ("dryer", 50.0, 60.0), "air": ("fan", 800.0, 1000.0)}
"""By kind of reading: the device, the value that switches it off, the value that switches it on."""

thermostats = Pipeline("thermostats")


def action(kind: str, value: float, before: str) -> str:
    """`on` or `off` after a reading. Between the bounds a device stays as it is."""
    _, off, on = DEVICES[kind]
    if (value <= on) if on < off else (value >= on):
        return "on"
    return "off" if (value >= off if on < off else value <= off) else before


class DeviceController(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._switch = handle.getValueState("switch", "action string")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803 - Spark's names
        room, kind = key
        before = state = stored[0] if (stored := self._switch.get()) else "off"
        commands = []
        for reading in pd.concat(rows).sort_values("offset").itertuples():
            after = action(kind, reading.value, state)
            if after != state:
                commands.append((room, DEVICES[kind][0], after, reading.value, reading.at))
            state = after
        if state != before:
            self._switch.update((state,))
        yield pd.DataFrame(commands, columns=["room", "device", "action", "value", "at"])

    def close(self) -> None:
        """Spark's interface has this method. Nothing is open."""


def readings(temperature: DataFrame, humidity: DataFrame, air: DataFrame) -> DataFrame:
    streams = [
        stream.select("room", F.lit(kind).alias("kind"), "value", "at", F.col("_offset").alias("offset"))
        for kind, stream in zip(DEVICES, (temperature, humidity, air), strict=True)
    ]
    return reduce(DataFrame.union, streams)


@thermostats.step(reads=READINGS, writes=COMMANDS)
def controller(temperature: DataFrame, humidity: DataFrame, air: DataFrame) -> DataFrame:
    by_device = readings(temperature, humidity, air).groupBy("room", "kind")
    return by_device.transformWithStateInPandas(DeviceController(), COMMAND, "Append", "None")


@thermostats.step(
    reads={"commands": COMMANDS},
    writes=view("user.home.switches.json", f"{TABLES}/switches", keys=["room", "device"], partitions=1),
    output_mode="update",
)
def switches(commands: DataFrame) -> DataFrame:
    """What each device reads by its key: the newest command."""
    newest = F.max_by("action", "_offset").alias("action")
    return commands.groupBy("room", "device").agg(newest, F.count("*").alias("commands"))


@thermostats.step(reads=READINGS, writes=delta(f"{TABLES}/climate", keys=["room", "kind"]), output_mode="update")
def climate(temperature: DataFrame, humidity: DataFrame, air: DataFrame) -> DataFrame:
    facts = [
        F.expr("count(*) readings"),
        F.expr("min(value) lowest"),
        F.expr("max(value) highest"),
        F.expr("avg(value) mean"),
    ]
    return readings(temperature, humidity, air).groupBy("room", "kind").agg(*facts)
