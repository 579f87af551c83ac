"""A search that is complete: it reads every record of its span once, reports its progress, and misses none.

A search runs in a thread of its own, can be paused, resumed and cancelled, and keeps at most MAX_HITS messages. After
that it only counts hits. Showing a search does not change it: a page that reloads finds the same search.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.messages.browse import Place
from ottla.console.messages.decode import Decoder
from ottla.console.messages.filters import Filter
from ottla.console.messages.reach import Client
from ottla.console.messages.record import BrowsedRecord, from_message
from ottla.console.messages.span import Walk, consumer
from ottla.console.settings import MAX_HITS, MAX_SEARCHES

_BATCH = 10_000
_FORGET_AFTER_S = 900.0
_MAX_PAUSE_S = 900.0
"""A search that is paused for longer is cancelled: it has a place among `MAX_SEARCHES`."""
ENDED = ("done", "cancelled", "failed")


class Search:
    def __init__(self, topic: str, place: Place, search_filter: Filter, value: Decoder, *, owner: str = "") -> None:
        self.id = secrets.token_urlsafe(9)
        self.owner = owner
        """The user who started the search. Only this user may see the hits, read with the user's rights."""
        self.topic = topic
        self.filter = search_filter
        self.place = place
        self.state = "starting"
        self.error = ""
        self.hits: list[BrowsedRecord] = []
        self.hit_count = 0
        self.records_read = 0
        self.offsets_read = 0
        self.offsets_total = 0
        self.started = time.monotonic()
        self.ended: float | None = None
        self._predicate = search_filter.predicate(value)
        self._go = threading.Event()
        self._go.set()
        self._cancelled = threading.Event()

    # What a page may do

    def pause(self) -> None:
        if self.state in ("starting", "running"):
            self._go.clear()

    def resume(self) -> None:
        self._go.set()

    def cancel(self) -> None:
        self._cancelled.set()
        self._go.set()

    @property
    def over(self) -> bool:
        return self.state in ENDED

    @property
    def percent(self) -> float:
        if self.state == "done":
            return 100.0
        return 100.0 * self.offsets_read / self.offsets_total if self.offsets_total else 0.0

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    # The thread

    def run(self, client: Client) -> None:
        try:
            with consumer(client) as reader:
                self._read(reader)
        except ConsoleError as error:
            self.error, self.state = error.message, "failed"
        except Exception as error:  # noqa: BLE001 - a supervisor: the page shows why a search failed
            self.error, self.state = f"{type(error).__name__}: {error}", "failed"
        finally:
            self.ended = time.monotonic()

    def _read(self, reader: Any) -> None:
        walk = Walk(reader, self.place.span(reader, self.topic))
        self.offsets_total = walk.span.length
        self.state = "running"
        while not walk.done:
            if not self._go.is_set():
                self.state = "paused"
                if not self._go.wait(_MAX_PAUSE_S):
                    self._cancelled.set()
                self.state = "running"
            if self._cancelled.is_set():
                self.state = "cancelled"
                return
            messages = walk.step(_BATCH, 0.2)
            self.records_read += len(messages)
            self._keep([message for message in messages if self._predicate(message)])
            self.offsets_read = walk.offsets_read
        self.state = "done"

    def _keep(self, matching: list[Any]) -> None:
        self.hit_count += len(matching)
        room = MAX_HITS - len(self.hits)
        self.hits += [from_message(message) for message in matching[:room]]


class Searches:
    """All searches of this console; finished ones are forgotten after a while."""

    def __init__(self) -> None:
        self._searches: dict[str, Search] = {}

    def start(self, search: Search, client: Client) -> Search:
        self._forget()
        if sum(not search.over for search in self._searches.values()) >= MAX_SEARCHES:
            raise ConsoleError(f"{MAX_SEARCHES} searches are running; cancel one first", status=429)
        self._searches[search.id] = search
        threading.Thread(target=search.run, args=(client,), name=f"search-{search.id}", daemon=True).start()
        return search

    def get(self, search_id: str, owner: str = "") -> Search:
        search = self._searches.get(search_id)
        if search is None or search.owner != owner:
            raise ConsoleError("this search is not known any more; start it again", status=404)
        return search

    def close(self) -> None:
        for search in self._searches.values():
            search.cancel()

    def _forget(self) -> None:
        now = time.monotonic()
        old = [s.id for s in self._searches.values() if s.ended is not None and now - s.ended > _FORGET_AFTER_S]
        for search_id in old:
            del self._searches[search_id]
