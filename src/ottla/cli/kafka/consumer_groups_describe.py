"""`kafka-consumer-groups --describe`: offsets and lag, members, or the group's state, column for column."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from ottla.cli.kafka.options import Options
from ottla.client.cluster import Cluster
from ottla.client.groups import GroupDescription, GroupMember, committed_positions, describe_group
from ottla.client.offsets import end_offsets

_REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
_MISSING = "-"
Partition = tuple[str, int]


def describe(cluster: Cluster, options: Options, groups: Iterable[str]) -> None:
    described = [describe_group(cluster, group) for group in sorted(set(groups))]
    for described_group in described:
        if described_group.state == "Dead":
            print(f"\nError: Consumer group '{described_group.group_id}' does not exist.")
        elif options.has("members"):
            _print_members(described_group, verbose=options.has("verbose"))
        elif options.has("state"):
            _print_state(described_group, verbose=options.has("verbose"))
        else:
            _print_offsets(cluster, described_group, verbose=options.has("verbose"))


def _announce(group: GroupDescription, rows: int) -> bool:
    """Prints a line about the group's state, if there is one. Returns whether a table follows."""
    sys.stdout.flush()
    if group.state == "Empty":
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state in _REBALANCING:
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
    sys.stderr.flush()
    return rows > 0


def _print_offsets(cluster: Cluster, group: GroupDescription, *, verbose: bool) -> None:
    committed = committed_positions(cluster, group.group_id)
    rows: list[tuple[Partition, GroupMember | None]] = []
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        rows += [(where, member) for where in sorted(member.assignment, key=lambda where: where[1])]
    owned = {where for where, _ in rows}
    rows += [(where, None) for where in sorted(committed.keys() - owned, key=lambda where: (where[1], where[0]))]
    if not _announce(group, len(rows)):
        return
    ends = end_offsets(cluster, [where for where, _ in rows])
    table = []
    for where, owner in rows:
        offset, end = committed[where].offset if where in committed else None, ends.get(where)
        lag = end - offset if offset is not None and end is not None else None
        who = (_MISSING,) * 3 if owner is None else (owner.member_id, owner.host, owner.client_id)
        epoch = (_shown(committed[where].leader_epoch if where in committed else None),) if verbose else ()
        table.append((group.group_id, *where, *epoch, _shown(offset), _shown(end), _shown(lag), *who))
    leader = ("LEADER-EPOCH",) if verbose else ()
    head = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        *leader,
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    )
    widest = [max(15, *(len(str(row[index])) for row in table)) for index in (0, 1, -3, -2)]
    widths = (widest[0], widest[1], 10, *((15,) if verbose else ()), 15, 15, 15, widest[2], widest[3], 0)
    for cells in (head, *table):
        print("\n" + _columns(cells, widths), end="")
    print()


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    instances = False
    widths = {"group": 15, "member": 15, "instance": 17, "host": 15, "client": 15}
    if _announce(group, len(group.members)):
        instances = any(member.instance_id for member in group.members)
        widths = {
            "group": max(15, len(group.group_id)),
            "member": max(15, *(len(member.member_id) for member in group.members)),
            "instance": max(17, *(len(member.instance_id or "") for member in group.members)),
            "host": max(15, *(len(member.host) for member in group.members)),
            "client": max(15, *(len(member.client_id) for member in group.members)),
        }
    columns = [
        widths["group"],
        widths["member"],
        *((widths["instance"],) if instances else ()),
        widths["host"],
        widths["client"],
        15,
    ]
    names = ["GROUP", "CONSUMER-ID", *(("GROUP-INSTANCE-ID",) if instances else ()), "HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        names += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    if verbose and group.kind == "Consumer" and any(member.upgraded is False for member in group.members):
        names.append("UPGRADED")
    rows = [_member_row(group, member, names, instances=instances) for member in group.members]
    if verbose:
        columns += [
            15,
            *(
                max(15, len(names[index]), *(len(row[index]) for row in rows)) if rows else 20
                for index in (len(columns) + 1,)
            ),
        ]
    _print_table(names, rows, columns)


def _member_row(group: GroupDescription, member: GroupMember, names: Sequence[str], *, instances: bool) -> list[str]:
    cells = {
        "GROUP": group.group_id,
        "CONSUMER-ID": member.member_id,
        "GROUP-INSTANCE-ID": member.instance_id or "",
        "HOST": member.host,
        "CLIENT-ID": member.client_id,
        "#PARTITIONS": str(len(member.assignment)),
        "CURRENT-EPOCH": _shown(member.epoch),
        "CURRENT-ASSIGNMENT": _assignment(member.assignment),
        "TARGET-EPOCH": _shown(group.target_epoch),
        "TARGET-ASSIGNMENT": _assignment(member.target or ()),
        "UPGRADED": str(member.upgraded).lower(),
    }
    del instances
    return [cells[name] for name in names]


def _print_table(names: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    padded = [*widths, *([15] * (len(names) - len(widths)))]
    print()
    for cells in (names, *rows):
        print(_columns(cells, padded) + " ")


def _assignment(partitions: Sequence[Partition]) -> str:
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return ";".join(f"{topic}:{','.join(map(str, rows))}" for topic, rows in sorted(grouped.items())) or _MISSING


def _print_state(group: GroupDescription, *, verbose: bool) -> None:
    if not _announce(group, 1):
        return
    host, port, node_id = group.coordinator
    coordinator = f"{host}:{port}  ({node_id})"
    width = max(15, len(group.group_id))
    epochs = ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") if verbose else ()
    values = (_shown(group.group_epoch), _shown(group.target_epoch)) if verbose else ()
    for cells in (
        ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *epochs, "#MEMBERS"),
        (group.group_id, coordinator, group.assignor or _MISSING, group.state, *values, str(len(group.members))),
    ):
        widths = (width, max(25, len(coordinator)), 20, 20, *((15, 25) if verbose else ()), 0)
        print("\n" + _columns(cells, widths), end="")
    print()


def _columns(cells: Sequence[object], widths: Sequence[int]) -> str:
    return " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True))


def _shown(value: object) -> str:
    return _MISSING if value is None else str(value)
