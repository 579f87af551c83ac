"""The subscriptions of a group: topics by name, and topics by regular expression once the expression is resolved.

Counted as members come and go, so that no request walks over all members. A decision reads a copy (`changed`,
`without`); only replay changes the group's own counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ottla.coordinator.groups.consumer.members import ConsumerMember


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    """The metadata offset of the resolution."""
    timestamp_ms: int


class Subscriptions:
    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.by_regex: Counter[str] = Counter()
        """Topics, by how many resolved expressions match them."""
        self.regexes: Counter[str] = Counter()
        """Expressions, by how many members subscribe with them."""
        self.resolved: dict[str, ResolvedRegex] = {}

    def topics(self) -> set[str]:
        return self.by_name.keys() | self.by_regex.keys()

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_name or topic in self.by_regex

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """An expression that is not resolved yet matches nothing."""
        resolved = self.resolved.get(member.subscribed_topic_regex or "")
        return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics

    def are_homogeneous(self, members: int) -> bool:
        """Whether all of `members` members have the same topics."""
        if not self.regexes:
            return all(count == members for count in self.by_name.values()) and not self.by_regex
        if next(iter(self.regexes.values())) != members:
            return False
        return not self.by_name and all(count == 1 for count in self.by_regex.values())

    @property
    def resolved_at_ms(self) -> int | None:
        return next((expression.timestamp_ms for expression in self.resolved.values()), None)

    @property
    def resolved_version(self) -> int:
        return next((expression.version for expression in self.resolved.values()), 0)

    # For decisions

    def changed(self, old: ConsumerMember | None, new: ConsumerMember | None) -> Subscriptions:
        """The subscriptions after `new` has replaced `old`."""
        after = self._copy()
        after.replace(old, new)
        regex = old.subscribed_topic_regex if old is not None else None
        if regex and regex not in after.regexes:
            after.resolve(regex, None)
        return after

    def without(self, members: Iterable[ConsumerMember]) -> Subscriptions:
        after = self._copy()
        for member in members:
            after.replace(member, None)
        for regex in self.resolved.keys() - after.regexes.keys():
            after.resolve(regex, None)
        return after

    def resolved_as(self, resolved: dict[str, ResolvedRegex]) -> Subscriptions:
        after = self._copy()
        for regex, topics in resolved.items():
            after.resolve(regex, topics)
        return after

    def _copy(self) -> Subscriptions:
        after = Subscriptions()
        after.by_name, after.by_regex = self.by_name.copy(), self.by_regex.copy()
        after.regexes, after.resolved = self.regexes.copy(), self.resolved.copy()
        return after

    # Replay

    def replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None:
            _take(self.by_name, old.subscribed_topic_names)
            _take(self.regexes, [old.subscribed_topic_regex] if old.subscribed_topic_regex else ())
        if new is not None:
            self.by_name.update(new.subscribed_topic_names)
            if new.subscribed_topic_regex:
                self.regexes[new.subscribed_topic_regex] += 1

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """None: the expression is not used any more."""
        before = self.resolved.pop(regex, None)
        if before is not None:
            _take(self.by_regex, before.topics)
        if resolved is not None:
            self.resolved[regex] = resolved
            self.by_regex.update(resolved.topics)


def _take(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]
