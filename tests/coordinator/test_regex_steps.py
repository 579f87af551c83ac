"""An expression of a consumer is matched against the topics in steps: long names and large expressions take no event long."""

from __future__ import annotations

from ottla.coordinator.groups.consumer.re2 import Pattern
from ottla.coordinator.groups.consumer.regular_expressions import STATES_PER_EVENT, Resolution

LARGE = "(a|aa|a?|[ab]*){1,90}b"
NAMES = ["a" * 248 + str(number % 10) for number in range(20)]


def test_one_name_is_left_in_the_middle() -> None:
    work = list(Pattern(LARGE).walk("ab" * 124 + "c"))
    assert sum(work) > 0
    assert max(work) <= 4_000, "one step looks at the states of one expression, no more"


def test_many_long_names_take_many_events() -> None:
    resolution = Resolution([LARGE, "a+8"], NAMES, None, 1)
    events = 1
    while not resolution.advance(STATES_PER_EVENT):
        events += 1
    assert events > 2
    assert resolution.topics["a+8"] == {name for name in NAMES if name.endswith("8")}
    assert resolution.topics[LARGE] == {name for name in NAMES if Pattern(LARGE).matches(name)}


def test_what_may_not_be_described_is_not_found() -> None:
    resolution = Resolution([".*"], ["seen", "hidden"], lambda name: name == "seen", 1)
    assert resolution.advance(STATES_PER_EVENT)
    assert resolution.topics == {".*": frozenset({"seen"})}
