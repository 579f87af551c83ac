"""The limit on open files: as many as the system grants, also where its hard limit is not one that it grants."""

from __future__ import annotations

import resource

import pytest

from ottla.runtime.descriptors import Descriptors, raise_limit

INFINITY = resource.RLIM_INFINITY


class Limits:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, granted: int) -> None:
        self.now = (soft, hard)
        self.granted = granted
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.now)
        monkeypatch.setattr(resource, "setrlimit", self._put)

    def _put(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] == INFINITY or limits[0] > self.granted:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "granted", "after"),
    [
        (1024, 524_288, 524_288, 524_288),  # Linux
        (256, INFINITY, 10_240, 10_240),  # macOS, as its documentation has it
        (256, INFINITY, 245_760, 65_536),  # macOS, by kern.maxfilesperproc
        (256, 4_096, 4_096, 4_096),
        (20_000, INFINITY, 20_000, 20_000),  # nothing more to be had
        (65_536, 65_536, 65_536, 65_536),
    ],
)
def test_all_that_is_granted(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, granted: int, after: int) -> None:
    limits = Limits(monkeypatch, soft, hard, granted)
    raise_limit()
    assert limits.now == (after, hard)


def test_a_shell_of_macos_leaves_room_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    Limits(monkeypatch, 256, INFINITY, 10_240)
    assert Descriptors.available().connections < 200
    raise_limit()
    assert Descriptors.available().connections > 5_000
