"""A small Produce and a small Fetch call no more functions than is recorded here.

Every producer and consumer pays for each call: a Python call is some 2,500 instructions, 0.6 us (docs/decisions/0025). A
number may rise when a feature is worth its calls. Write the reason beside it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tools.walks import Recorder, Walk, Walks

MOST = {
    "produce": (30, 44),
    "fetch": (38, 53),
    "parked_fetch": (58, 85),
}
"""Own functions without the codec, and all Python calls without the event loop's. On 2026-11-19, CPython 3.11:

- 34, 48 / 47, 63 / 67, 99 before the limits of decision 0012 (commit 625b364);
- 39, 54 / 50, 70 / 77, 116 with them, before the small requests were taken out of their way (decision 0025).

Later versions of CPython make fewer calls, for comprehensions."""


@pytest.fixture(scope="module")
def walks() -> Iterator[Walks]:
    walks = Walks()
    yield walks
    walks.close()


@pytest.mark.parametrize("name", list(MOST))
def test_a_small_request_calls_no_more_than_recorded(walks: Walks, name: str) -> None:
    walk: Walk = getattr(walks, name)()
    functions, calls = MOST[name]
    listed = "\n".join(
        f"{count:3} {function.file} {function.name}" for function, count in sorted(walk.functions.items())
    )
    assert len(walk.functions) <= functions, listed
    assert walk.calls <= calls, listed
    assert walk.calls > calls // 2, "the node's thread is not counted any more"


def test_the_counter_sees_a_call_more(walks: Walks, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.broker.handlers import produce

    find = produce.find_partition

    def with_a_hop_more(*arguments: Any) -> Any:
        return find(*arguments)

    before = walks.produce()
    monkeypatch.setattr(produce, "find_partition", with_a_hop_more)
    assert walks.produce().calls == before.calls + 1


def test_a_call_belongs_to_the_product_or_to_a_library() -> None:
    recorder = Recorder()
    walk = recorder.walk(lambda: None, lambda: None)
    assert walk == Walk(walk.functions, set(), 0)
