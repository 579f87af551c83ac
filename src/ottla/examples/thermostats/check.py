"""Commands, switches and climate in plain Python, and how the terminal shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.examples.catalogue import InputEvent, Panel
from ottla.examples.outputs import Outputs
from ottla.examples.thermostats.pipeline import DEVICES, action

COMMANDS = """select json->>'room', json->>'device', string_agg(json->>'action', ' ' order by "offset")
              from "queuing.home.commands.json" group by 1, 2"""


def expected(events: Iterable[InputEvent]) -> dict[str, Any]:
    commands: dict[tuple[str, str], list[str]] = {}
    switches: dict[tuple[str, str], str] = {}
    climate: dict[tuple[str, str], tuple[int, float, float]] = {}
    dead = 0
    for event in events:
        if isinstance(event.value, bytes):
            dead += 1
            continue
        kind, room, value = event.topic.split(".")[2], event.value["room"], event.value["value"]
        device = room, DEVICES[kind][0]
        before = switches.get(device, "off")
        after = action(kind, value, before)
        if after != before:
            commands.setdefault(device, []).append(after)
        switches[device] = after
        readings, lowest, highest = climate.get((room, kind), (0, value, value))
        climate[room, kind] = readings + 1, min(lowest, value), max(highest, value)
    return {
        "devices with their commands": {device: " ".join(actions) for device, actions in commands.items()},
        "switches": {device: switches[device] for device in commands},
        "rooms by kind": climate,
        "dead letters": dead,
    }


def results(outputs: Outputs) -> dict[str, Any]:
    climate = outputs.sql("select room, kind, readings, lowest, highest from climate", "climate")
    switches = outputs.sql("select room, device, action from switches", "switches")
    return {
        "devices with their commands": {(room, device): actions for room, device, actions in outputs.sql(COMMANDS)},
        "switches": {(room, device): action for room, device, action in switches},
        "rooms by kind": {(room, kind): tuple(facts) for room, kind, *facts in climate},
        "dead letters": outputs.sql('select count(*) from "user.home.readings.dead"')[0][0],
    }


def panels(outputs: Outputs) -> Iterator[Panel]:
    rooms = """select room, round(max(mean) filter (kind = 'temperature'), 1), round(max(mean) filter (kind = 'humidity'), 1),
               round(max(mean) filter (kind = 'air'), 0), sum(readings)::bigint from climate group by room order by room limit 6"""
    yield Panel("climate (Delta table climate)",
                ("room", ">degrees", ">humidity %", ">CO2 ppm", ">readings"), outputs.sql(rooms, "climate"))  # fmt: skip
    devices = """select device, count_if(action = 'on')::bigint, count_if(action = 'off')::bigint, sum(commands)::bigint
                 from switches group by device order by device"""
    yield Panel("devices (view user.home.switches.json; commands in queuing.home.commands.json)",
                ("device", ">on", ">off", ">commands"), outputs.sql(devices, "switches"))  # fmt: skip
