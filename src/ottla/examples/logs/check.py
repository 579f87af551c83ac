"""The lake, the alerts and the dashboard in plain Python, and how the terminal shows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from ottla.examples.catalogue import InputEvent, Panel
from ottla.examples.logs.pipeline import CPU, ERRORS, LINES_OF_AN_ERROR
from ottla.examples.outputs import Outputs


def expected(events: Iterable[InputEvent]) -> dict[str, Any]:
    lake: Counter[str] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    lines: Counter[tuple[str, str]] = Counter()
    cpu = defaultdict(list)
    machines: dict[str, tuple[int, int]] = {}
    dead = 0
    for event in events:
        record = event.value
        if isinstance(record, bytes):
            dead += 1
            continue
        machine, minute = record["machine"], f"{datetime.fromisoformat(record['at']):%H:%M}"
        failed = record.get("level") == "ERROR"
        lake[record["kind"]] += 1
        errors[machine, minute] += failed
        lines[machine, minute] += "level" in record
        if record.get("metric") == "cpu":
            cpu[machine, minute].append(record["value"])
        total, errors_of_machine = machines.get(machine, (0, 0))
        machines[machine] = total + 1, errors_of_machine + failed
    alerts = {key: "errors" for key, number in errors.items() if failing(number, lines[key])}
    busy = {key: "cpu" for key, values in cpu.items() if round(sum(values) / len(values), 1) >= CPU}
    return {"records by kind": dict(lake), "alerts": {**busy, **alerts}, "machines": machines, "dead letters": dead}


def failing(errors: int, lines: int) -> bool:
    return errors >= ERRORS and errors * LINES_OF_AN_ERROR >= lines


def results(outputs: Outputs) -> dict[str, Any]:
    alerts = outputs.sql("select machine, minute, reason from alerts", "alerts")
    machines = outputs.sql("select machine, records, errors from dashboard", "dashboard")
    return {
        "records by kind": dict(outputs.sql("select kind, count(*) from lake group by kind", "lake")),
        "alerts": {(machine, minute): reason for machine, minute, reason in alerts},
        "machines": {machine: (records, errors) for machine, records, errors in machines},
        "dead letters": outputs.sql('select count(*) from "logging.machines.all.dead"')[0][0],
    }


def panels(outputs: Outputs) -> Iterator[Panel]:
    worst = """select machine, records, errors, highest_cpu, last_seen from dashboard
               order by errors desc, machine limit 6"""
    yield Panel("dashboard (view logging.machines.dashboard.json)",
                ("machine", ">records", ">errors", ">highest cpu", "last seen"), outputs.sql(worst, "dashboard"))  # fmt: skip
    alerts = """select reason, machine, count(*), min(minute), max(minute), max(errors), max(cpu) from alerts
                group by 1, 2 order by 3 desc, 2 limit 6"""
    yield Panel("alerts (view logging.machines.alerts.json)",
                ("reason", "machine", ">minutes", "from", "to", ">errors", ">cpu"), outputs.sql(alerts, "alerts"))  # fmt: skip
