"""Deferred: one callback, called once, whichever side comes first."""

from __future__ import annotations

from ottla.broker.deferred import Deferred


def test_resolved_after_someone_waits():
    got = []
    deferred = Deferred()
    deferred.then(got.append)
    assert not deferred.done
    deferred.resolve("answer")
    deferred.resolve("again")
    assert got == ["answer"]
    assert deferred.done


def test_resolved_before_anyone_waits():
    got = []
    deferred = Deferred()
    deferred.resolve("answer")
    deferred.then(got.append)
    assert got == ["answer"]


def test_cancelled_once_and_never_answered():
    cancelled, got = [], []
    deferred = Deferred(lambda: cancelled.append(True))
    deferred.then(got.append)
    deferred.cancel()
    deferred.cancel()
    deferred.resolve("too late")
    assert (cancelled, got) == ([True], [])


def test_an_answer_is_not_cancelled():
    cancelled = []
    deferred = Deferred(lambda: cancelled.append(True))
    deferred.resolve("answer")
    deferred.cancel()
    assert cancelled == []
