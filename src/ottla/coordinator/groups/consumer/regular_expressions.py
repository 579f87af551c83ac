"""Subscriptions by regular expression: resolved against the topics, stored as records, refreshed from time to time.

Resolving is an event of its own, after the heartbeat that caused it; the next heartbeat sees the result. New topics
cause a refresh, and so does group.consumer.regex.refresh.interval.ms; at least ten seconds lie between two refreshes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from functools import partial

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.group_records import epoch_record, regex_record
from ottla.coordinator.groups.consumer.members import ConsumerMember
from ottla.coordinator.groups.consumer.re2 import Pattern, PatternError
from ottla.coordinator.groups.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError

log = get_logger(__name__)

_MIN_REFRESH_INTERVAL_MS = 10_000
STATES_PER_EVENT = 20_000
"""States of expressions that one event looks at: some milliseconds."""
STATES_PER_NAME = 20
"""The cost of a name whose steps are all cached."""


class RegexChange(Enum):
    NONE = "none"
    UPDATED = "updated"
    """The new expression is not resolved yet."""
    RESOLVED = "resolved"
    """The topics of the new expression are resolved already, or the member has no expression any more."""


def regex_key(group_id: str) -> Hashable:
    return ("regex", group_id)


class RegularExpressions:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def update(
        self, caller: Caller, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, draft: Draft
    ) -> RegexChange:
        """Update the group's expressions for a heartbeat; raises KafkaError when the member's own expression is not
        valid."""
        subscriptions = group.subscriptions
        before, after = old.subscribed_topic_regex, new.subscribed_topic_regex
        change, refresh = RegexChange.NONE, False
        if before != after:
            change = RegexChange.UPDATED
            if before and subscriptions.regexes[before] == 1:
                draft.records.append(regex_record(group.group_id, before, None))
            if not after:
                change = RegexChange.RESOLVED if before else RegexChange.UPDATED
            elif not subscriptions.regexes[after]:
                validate(after)
                refresh = True
            elif after in subscriptions.resolved:
                change = RegexChange.RESOLVED
        if refresh or subscriptions.regexes:
            self._refresh(caller, group, old, new, forced=refresh)
        return change

    def _refresh(
        self, caller: Caller, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, *, forced: bool
    ) -> None:
        key = regex_key(group.group_id)
        if key in self._context.timers:
            return
        last_ms = group.subscriptions.resolved_at_ms
        if last_ms is not None and not self._context.has_passed(last_ms, _MIN_REFRESH_INTERVAL_MS):
            return
        used = group.subscriptions.changed(old, new).regexes
        due = (
            forced
            or len(used) != len(group.subscriptions.resolved)
            or group.subscriptions.resolved_version < self._context.new_topics_version
            or last_ms is None
            or self._context.has_passed(last_ms, self._context.settings.group_consumer_regex_refresh_interval_ms)
        )
        if due and used:
            self._context.timers.schedule(key, 0, partial(self._resolve, caller, group.group_id, frozenset(used)))

    def _resolve(self, caller: Caller, group_id: str, regexes: frozenset[str]) -> GroupDecision:
        """Resolve all expressions of the group, with the rights of the member whose heartbeat caused the event, as
        Kafka does."""
        topics = list(self._context.image.topics_by_name)
        resolution = Resolution(sorted(regexes), topics, caller.may_describe, self._context.image_version)
        return self._go_on(group_id, resolution)

    def _go_on(self, group_id: str, resolution: Resolution) -> GroupDecision:
        """A part of the work in each event, so that other requests run in between; the last event writes the
        records."""
        draft = Draft()
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return draft.decide()
        if not resolution.advance(STATES_PER_EVENT):
            self._context.timers.schedule(regex_key(group_id), 0, partial(self._go_on, group_id, resolution))
            return draft.decide()
        now_ms = self._context.clock.time_ms()
        resolved = {
            regex: ResolvedRegex(topics, resolution.image_version, now_ms)
            for regex, topics in resolution.topics.items()
            if group.subscriptions.regexes[regex]
        }
        changed = False
        for regex, now in resolved.items():
            before = group.subscriptions.resolved.get(regex)
            changed = changed or (before.topics if before is not None else frozenset()) != now.topics
            draft.records.append(regex_record(group_id, regex, now))
        topics = group.subscriptions.resolved_as(resolved).topics()
        metadata_hash = self._context.topic_hashes.group_hash(topics, self._context.image)
        if changed or metadata_hash != group.metadata_hash:
            draft.records.append(epoch_record(group_id, group.group_epoch + 1, metadata_hash))
        log.info("group.expressions_resolved", group=group_id, expressions=len(resolved), changed=changed)
        return draft.decide()


class Resolution:
    """Which topics each expression matches, found in steps."""

    def __init__(
        self, regexes: list[str], names: list[str], may_describe: Callable[[str], bool] | None, image_version: int
    ) -> None:
        self.topics: dict[str, frozenset[str]] = {}
        self.image_version = image_version
        self._may_describe = may_describe
        self._steps = self._find(regexes, names)

    def advance(self, states: int) -> bool:
        """Look at about so many states more; whether all expressions are resolved."""
        for looked_at in self._steps:
            states -= looked_at
            if states <= 0:
                return False
        return True

    def _find(self, regexes: list[str], names: list[str]) -> Iterator[int]:
        for regex in regexes:
            try:
                pattern = Pattern(regex)
            except PatternError as error:
                # A record of a server that accepts more expressions than this one: the expression matches nothing here.
                log.warning("expression.rejected", expression=regex, reason=str(error))
                self.topics[regex] = frozenset()
                continue
            matches = set()
            for name in names:
                yield STATES_PER_NAME
                if (yield from pattern.walk(name)) and (self._may_describe is None or self._may_describe(name)):
                    matches.add(name)
            self.topics[regex] = frozenset(matches)


def validate(regex: str) -> None:
    try:
        Pattern(regex)
    except PatternError as error:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error
