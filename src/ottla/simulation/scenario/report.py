"""A verdict as text for people, and as a tree for JSON. Both have the same facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.simulation.scenario.reasons import seconds
from ottla.simulation.scenario.values import time_text

if TYPE_CHECKING:
    from ottla.simulation.scenario.facts import Interval, Leadership, PartitionFacts
    from ottla.simulation.scenario.verdict import ConsumerVerdict, PartitionVerdict, Verdict

CHART_COLUMNS = 60
MAX_REASONS = 20
MAX_TIMELINE = 200
_TITLES = {"surplus": "stored unacknowledged", "given_up": "given up"}
_LEGEND = "digit: broker that leads; -: no leader; x: clients cannot reach the leader; ^: a fault"


def verdict_lines(name: str, verdict: Verdict) -> list[str]:
    cluster = verdict.scenario.cluster
    lines = [
        (
            f"{name}, seed {verdict.seed}: {cluster.brokers} brokers, {cluster.controllers} "
            f"controller{'s' if cluster.controllers > 1 else ''}, {seconds(verdict.facts.end_ms)} of virtual time"
        ),
        "",
        _headline(verdict),
        "",
        *_table([_partition_row(partition) for partition in verdict.partitions]),
        "",
        *_chart(verdict),
        "",
        *_table([row for partition in verdict.partitions for row in _leader_rows(partition, verdict)]),
    ]
    if verdict.consumers:
        lines += ["", *_table([_consumer_row(consumer) for consumer in verdict.consumers])]
    lines += _reason_lines(verdict)
    lines += ["", "Timeline", *_timeline(verdict)]
    return lines


def _headline(verdict: Verdict) -> str:
    acknowledged = f"{verdict.total('acknowledged'):,} acknowledged records"
    problems = [f"{verdict.total(name):,} {name}" for name in ("lost", "doubled", "unreachable") if verdict.total(name)]
    if problems:
        committed = verdict.total("committed_and_lost")
        note = f"; {committed:,} of the lost records were committed" if committed else ""
        return f"VERDICT: {', '.join(problems)} of {acknowledged}{note}"
    return f"VERDICT: nothing lost, nothing doubled: the log has all {acknowledged}"


def _partition_row(partition: PartitionVerdict) -> dict[str, str]:
    elections = [f"{partition.elections(kind)} {kind}" for kind in ("clean", "last leader", "unclean")]
    row = {
        "partition": partition.facts.title,
        "sent": f"{partition.sent:,}",
        "acknowledged": f"{partition.acknowledged:,}",
        "committed": f"{partition.committed:,}",
        "lost": f"{partition.lost:,}",
        "doubled": f"{partition.doubled:,}",
        "reordered": f"{partition.reordered:,}",
        "unavailable": seconds(partition.unavailable_ms),
        "below min isr": seconds(partition.below_min_isr_ms),
        "elections": ", ".join(text for text in elections if text != "0 last leader"),
    }
    for name in ("unreachable", "deleted", "given_up", "surplus"):
        if getattr(partition, name):
            row[_TITLES.get(name, name)] = f"{getattr(partition, name):,}"
    return row


def _leader_rows(partition: PartitionVerdict, verdict: Verdict) -> list[dict[str, str]]:
    lost_records = {record for lost in verdict.lost for record in lost.records}
    acknowledged: dict[int, int] = {}
    lost: dict[int, int] = {}
    for record in verdict.facts.records.values():
        if record.where == partition.facts.where and record.acknowledged is not None:
            appends = verdict.facts.appends.get(record.id, [])
            epoch = next((a.epoch for a in appends if a.offset == record.acknowledged.offset), -1)
            acknowledged[epoch] = acknowledged.get(epoch, 0) + 1
            lost[epoch] = lost.get(epoch, 0) + (record.id in lost_records)
    rows = []
    terms = partition.facts.leaderships
    for number, term in enumerate(terms):
        until = terms[number + 1].at_ms if number + 1 < len(terms) else verdict.facts.end_ms
        rows.append(
            {
                "partition": partition.facts.title,
                "epoch": str(term.epoch),
                "leader": str(term.leader) if term.leader >= 0 else "-",
                "from": seconds(term.at_ms),
                "to": seconds(until),
                "election": "UNCLEAN" if term.election == "unclean" else term.election,
                "log end": str(term.start_end) if term.start_end >= 0 else "-",
                "acknowledged": f"{acknowledged.get(term.epoch, 0):,}",
                "lost of these": f"{lost.get(term.epoch, 0):,}",
            }
        )
    return rows


def _consumer_row(consumer: ConsumerVerdict) -> dict[str, str]:
    return {
        "consumer": consumer.facts.name,
        "group": consumer.facts.group or "-",
        "topic": consumer.facts.topic,
        "read": f"{len(consumer.facts.read):,}",
        "read again": f"{consumer.repeated:,}",
        "read and lost": f"{consumer.lost:,}",
        "position fell": f"{consumer.facts.went_back:,}",
    }


def _reason_lines(verdict: Verdict) -> list[str]:
    lines: list[str] = []
    for lost in verdict.lost[:MAX_REASONS]:
        where = f"offsets {ranges(lost.offsets)}" if min(lost.offsets) >= 0 else "no offsets"
        lines += ["", f"Lost: {lost.partition}, {where} ({_count(len(lost.records))}, {_span(lost.records)})"]
        lines += [f"  - {sentence}" for sentence in lost.reason]
    for doubled in verdict.doubled[:MAX_REASONS]:
        lines += ["", f"Doubled: {doubled.partition}, {doubled.record} at offsets {ranges(doubled.offsets)}"]
        lines += [f"  - {sentence}" for sentence in doubled.reason]
    lines += _given_up_lines(verdict)
    hidden = max(0, len(verdict.lost) - MAX_REASONS) + max(0, len(verdict.doubled) - MAX_REASONS)
    return [*lines, "", f"{hidden} more reasons: use -o json"] if hidden else lines


def _given_up_lines(verdict: Verdict) -> list[str]:
    """The last errors of records that producers gave up."""
    errors: dict[tuple[str, str], list[float]] = {}
    for record in verdict.facts.records.values():
        if record.failed_ms >= 0:
            title = verdict.facts.partitions[record.where].title
            errors.setdefault((title, record.failure), []).append(record.failed_ms)
    lines = [
        f"Given up: {title}, {_count(len(times))} from {seconds(min(times))} on, last error: {error}"
        for (title, error), times in errors.items()
    ]
    return ["", *lines[:MAX_REASONS]] if lines else []


def _timeline(verdict: Verdict) -> Iterable[str]:
    happenings = sorted(verdict.facts.happenings, key=lambda happening: happening.at_ms)
    for happening in happenings[:MAX_TIMELINE]:
        yield f"{happening.at_ms / 1000:>9.3f} s  {happening.text}"
    if len(happenings) > MAX_TIMELINE:
        yield f"{len(happenings) - MAX_TIMELINE} more lines: use -o json"


# --------------------------------------------------------------------------------------------------------------- chart


def _chart(verdict: Verdict) -> list[str]:
    """A line for each partition: who led when."""
    end_ms = verdict.facts.end_ms
    step_ms = end_ms / CHART_COLUMNS
    titles = [partition.facts.title for partition in verdict.partitions]
    width = max(len("faults"), *map(len, titles))
    lines = [f"Leaders; a column is {time_text(round(step_ms))}; {_LEGEND}"]
    for partition in verdict.partitions:
        cells = "".join(_cell(partition.facts, n * step_ms, (n + 1) * step_ms) for n in range(CHART_COLUMNS))
        lines.append(f"  {partition.facts.title:<{width}} |{cells}|")
    faults = [happening.at_ms for happening in verdict.facts.happenings if happening.kind == "fault"]
    marks = {min(int(at_ms / step_ms), CHART_COLUMNS - 1) for at_ms in faults}
    lines.append(f"  {'faults':<{width}} |{''.join('^' if n in marks else ' ' for n in range(CHART_COLUMNS))}|")
    return lines


def _cell(partition: PartitionFacts, from_ms: float, until_ms: float) -> str:
    term = _term_at(partition, until_ms)
    if term is None:
        return " "
    if term.leader < 0:
        return "-"
    down_ms = sum(_overlap(interval, from_ms, until_ms) for interval in partition.unavailable)
    return "x" if down_ms > (until_ms - from_ms) / 2 else str(term.leader)


def _term_at(partition: PartitionFacts, at_ms: float) -> Leadership | None:
    terms = [term for term in partition.leaderships if term.at_ms <= at_ms]
    return terms[-1] if terms else None


def _overlap(interval: Interval, from_ms: float, until_ms: float) -> float:
    return max(0.0, min(interval.end_ms, until_ms) - max(interval.first_ms, from_ms))


# ---------------------------------------------------------------------------------------------------------------- JSON


def verdict_tree(name: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "scenario": name,
        "seed": verdict.seed,
        "virtual_seconds": _s(verdict.facts.end_ms),
        "failed": verdict.failed,
        "totals": {
            total: verdict.total(total)
            for total in (
                "sent", "acknowledged", "committed", "lost", "committed_and_lost", "doubled", "reordered", "deleted",
                "unreachable", "given_up", "surplus",
            )
        },
        "partitions": [_partition_tree(partition) for partition in verdict.partitions],
        "lost": [
            {
                "partition": lost.partition,
                "records": list(lost.records),
                "offsets": list(lost.offsets),
                "reason": list(lost.reason),
            }
            for lost in verdict.lost
        ],
        "doubled": [
            {
                "partition": doubled.partition,
                "record": doubled.record,
                "offsets": list(doubled.offsets),
                "reason": list(doubled.reason),
            }
            for doubled in verdict.doubled
        ],
        "consumers": [
            {
                "name": consumer.facts.name,
                "group": consumer.facts.group or None,
                "topic": consumer.facts.topic,
                "read": len(consumer.facts.read),
                "read_again": consumer.repeated,
                "read_and_lost": consumer.lost,
                "position_fell": consumer.facts.went_back,
            }
            for consumer in verdict.consumers
        ],
        "timeline": [
            {"at": _s(happening.at_ms), "kind": happening.kind, "partition": happening.partition or None,
             "text": happening.text}
            for happening in sorted(verdict.facts.happenings, key=lambda happening: happening.at_ms)
        ],
    }  # fmt: skip


def _partition_tree(partition: PartitionVerdict) -> dict[str, Any]:
    counts = ("sent", "acknowledged", "committed", "lost", "committed_and_lost", "doubled", "reordered", "deleted")
    return {
        "partition": partition.facts.title,
        **{name: getattr(partition, name) for name in (*counts, "unreachable", "given_up", "surplus")},
        "unavailable": [[_s(i.first_ms), _s(i.end_ms)] for i in partition.facts.unavailable],
        "unavailable_seconds": _s(partition.unavailable_ms),
        "below_min_isr_seconds": _s(partition.below_min_isr_ms),
        "log_start": partition.final.start,
        "log_end": partition.final.end,
        "elections": {
            kind.replace(" ", "_"): partition.elections(kind) for kind in ("clean", "last leader", "unclean")
        },
        "leaders": [
            {
                "epoch": term.epoch,
                "leader": term.leader if term.leader >= 0 else None,
                "from": _s(term.at_ms),
                "election": term.election,
                "isr": list(term.isr),
                "log_end": term.start_end if term.start_end >= 0 else None,
            }
            for term in partition.facts.leaderships
        ],
    }


def _s(milliseconds: float) -> float:
    return round(milliseconds / 1000, 3)


# --------------------------------------------------------------------------------------------------------------- parts


def ranges(numbers: Sequence[int]) -> str:
    """3,4,5,9 as 3-5,9."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _count(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def _span(records: Sequence[str]) -> str:
    return records[0] if len(records) == 1 else f"{records[0]} to {records[-1]}"


def _table(rows: Sequence[dict[str, str]]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    widths = {name: max(len(name), *(len(row.get(name, "0")) for row in rows)) for name in names}
    head = "  ".join(f"{name.upper():<{widths[name]}}" for name in names).rstrip()
    return [head, *("  ".join(f"{row.get(name, '0'):<{widths[name]}}" for name in names).rstrip() for row in rows)]
