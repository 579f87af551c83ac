"""Regular expressions in RE2's syntax, over topic names, in time linear in the name (KIP-848 matches on the server).

Python's own `re` goes back and forth: one expression of a client could keep the node busy for hours. Here an expression
becomes a set of states that all move on at once. Topic names are ASCII, so that a character set is one number with
128 bits. What RE2 refuses (look-around, back references) is refused with its words.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

from ottla.coordinator.groups.consumer.re2_syntax import (
    Alternative,
    Anchor,
    Characters,
    Node,
    PatternError,
    Repeat,
    Sequence,
    parse,
)
from ottla.model.pace import spend

__all__ = ["MAX_STATES", "Pattern", "PatternError"]

MAX_STATES = 2_000
"""An expression that needs more is refused: nested counted repetitions multiply."""
MAX_MOVES = 5_000
"""Steps that one expression remembers."""

_State: TypeAlias = tuple[str, int, int]
"""("set", mask, next), ("split", one, other), ("begin" | "end" | "word" | "no word", next, 0) or ("match", 0, 0)."""


class Pattern:
    """A compiled expression. `matches` wants the whole name, as Kafka does."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._states: list[_State] = [("match", 0, 0)]
        self._start = self._add(parse(expression), 0)
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        """Cached steps in the middle of a name: most names use the same steps."""
        self._remembers = not any(kind in ("word", "no word") for kind, _, _ in self._states)

    def matches(self, text: str) -> bool:
        walk = self.walk(text)
        while True:
            try:
                spend(next(walk) >> 1)
            except StopIteration as end:
                return bool(end.value)

    def walk(self, text: str) -> Generator[int, None, bool]:
        """Whether the name matches, in steps: yields how many states it looks at before it looks at them. A long name and
        a large expression come to half a million.
        """
        current = self._closure([self._start], text, 0)
        last = len(text) - 1
        for position, character in enumerate(text):
            key = (current, character)
            following = self._moves.get(key) if position < last else None
            if following is None:
                yield 2 * len(current)
                following = self._step(current, character, text, position)
                if position < last and self._remembers and len(self._moves) < MAX_MOVES:
                    self._moves[key] = following
            if not following:
                return False
            current = following
        return 0 in current

    def _step(self, current: frozenset[int], character: str, text: str, position: int) -> frozenset[int]:
        bit = 1 << ord(character)
        moved = []
        for state in current:
            kind, mask, following = self._states[state]
            if kind == "set" and mask & bit:
                moved.append(following)
        return self._closure(moved, text, position + 1) if moved else frozenset()

    def _closure(self, states: list[int], text: str, position: int) -> frozenset[int]:
        """All states that can be reached from here without reading a character."""
        seen: set[int] = set()
        stack = states
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, first, second = self._states[state]
            if kind == "split":
                stack += [first, second]
            elif kind not in ("set", "match") and _holds(kind, text, position):
                stack.append(first)
        return frozenset(seen)

    # Compiling: each node is added in front of the state that follows it

    def _new(self, state: _State) -> int:
        if len(self._states) >= MAX_STATES:
            raise PatternError("expression too large")
        self._states.append(state)
        return len(self._states) - 1

    def _add(self, node: Node, following: int) -> int:
        if isinstance(node, Characters):
            return self._new(("set", node.mask, following))
        if isinstance(node, Anchor):
            return self._new((node.kind, following, 0))
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                following = self._add(part, following)
            return following
        if isinstance(node, Alternative):
            start = self._add(node.options[-1], following)
            for option in reversed(node.options[:-1]):
                start = self._new(("split", self._add(option, following), start))
            return start
        return self._add_repeat(node, following)

    def _add_repeat(self, node: Repeat, following: int) -> int:
        start = following
        if node.most is None:
            loop = self._new(("split", following, following))
            self._states[loop] = ("split", self._add(node.part, loop), following)
            start = loop
        else:
            for _ in range(node.most - node.least):
                start = self._new(("split", self._add(node.part, start), following))
        for _ in range(node.least):
            start = self._add(node.part, start)
        return start


def _holds(kind: str, text: str, position: int) -> bool:
    if kind == "begin":
        return position == 0
    if kind == "end":
        return position == len(text)
    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return (before != after) is (kind == "word")


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
