"""A heap that breaks ties as Java's PriorityQueue does; `heapq` orders equals another way.

Keys are read when items move; an item's key may change only while it is outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class JavaHeap(Generic[ItemT]):
    def __init__(self, items: Iterable[ItemT], key: Callable[[ItemT], float]) -> None:
        self._key = key
        self._items: list[ItemT] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: ItemT) -> None:
        items, key = self._items, self._key
        place = len(items)
        items.append(item)
        while place > 0:
            parent = (place - 1) // 2
            if key(item) >= key(items[parent]):
                break
            items[place] = items[parent]
            place = parent
        items[place] = item

    def poll(self) -> ItemT:
        """The first; IndexError when there is none."""
        items, key = self._items, self._key
        first, last = items[0], items.pop()
        size = len(items)
        if size:
            place = 0
            while place < size // 2:
                child = 2 * place + 1
                if child + 1 < size and key(items[child]) > key(items[child + 1]):
                    child += 1
                if key(last) <= key(items[child]):
                    break
                items[place] = items[child]
                place = child
            items[place] = last
        return first
