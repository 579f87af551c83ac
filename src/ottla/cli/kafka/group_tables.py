"""Tables that the tools for share and streams groups have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.cli.kafka.admin import ClientNotMade
from ottla.cli.kafka.options import Options
from ottla.client.cluster import Cluster
from ottla.client.errors import CallTimeout
from ottla.client.groups import list_groups


class StateError(ValueError):
    """A state that no group of this kind can be in."""


def failed_words(reason: CallTimeout | ClientNotMade) -> str:
    """Without a broker, Java's client does not even find whom to ask for groups."""
    if isinstance(reason, ClientNotMade):
        return str(reason)
    kind = "java.util.concurrent.ExecutionException: org.apache.kafka.common.KafkaException"
    return f"{kind}: Failed to find brokers to send ListGroups"


ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")


def usage_of_actions(options: Options, message: str) -> None:
    if sum(options.has(action) for action in ACTIONS) != 1:
        options.usage(message)
    for action in ACTIONS[1:]:
        if options.has(action) and not options.has("group") and not options.has("all-groups"):
            options.usage(f"Option [{action}] takes one of these options: [all-groups], [group]")


def list_kind(cluster: Cluster, options: Options, kind: str, states: Mapping[str, str]) -> None:
    requested_states: list[str] = []
    if text := options.value("state"):
        words = [word.strip().lower() for word in text.split(",")]
        if any(word not in states for word in words):
            raise StateError(f"Invalid state list '{text}'. Valid states are: {', '.join(states.values())}")
        requested_states = [states[word] for word in words]
    groups = list_groups(cluster, requested_states, [kind])
    if not options.has("state"):
        for group in groups:
            print(group.group_id)
        return
    width = max([15, *(len(group.group_id) for group in groups)])
    print(f"{'GROUP':<{width}} STATE")
    for group in groups:
        print(f"{group.group_id:<{width}} {group.group_state}")


def print_rows(head: Sequence[str], rows: Sequence[Sequence[str]], least: Mapping[str, int]) -> None:
    """Columns at least as wide as named, wider where a cell needs it; the last one is not padded."""
    widths = [max([least.get(name, len(name)), *(len(row[index]) for row in rows)]) for index, name in enumerate(head)]
    widths[-1] = 0
    for row in (head, *rows):
        print("\n" + " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)), end="")
    print()
