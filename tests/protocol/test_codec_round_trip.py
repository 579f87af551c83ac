"""Every message and record, every version: what is written is read again, and written again as the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.protocol.message_values import (
    NAMES,
    encoded_or_none,
    expected,
    filled,
    message_class,
    presence,
    strategy,
    versions,
)

from ottla.protocol.primitives import DecodeError

BOUNDED = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def check(message, version):
    cls = type(message)
    raw = encoded_or_none(message, version)
    if raw is None:
        return False
    for source in (raw, memoryview(b"before" + raw + b"after")):
        start = 0 if source is raw else 6
        decoded, end = cls.decode(source, start, version)
        assert end == start + len(raw)
        assert decoded == expected(message, presence(cls, version))
        assert decoded.to_bytes(version) == raw
    return True


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name):
    cls = message_class(name)

    @BOUNDED
    @given(st.data())
    def run(data):
        message = data.draw(strategy(cls, nulls=False))
        assert all(check(message, version) for version in versions(cls))
        with_nulls = data.draw(strategy(cls, nulls=True))
        for version in versions(cls):
            check(with_nulls, version)

    run()


@pytest.mark.parametrize("name", NAMES)
def test_defaults_and_a_full_message(name):
    cls = message_class(name)
    for version in versions(cls):
        assert check(filled(cls), version)
        raw = encoded_or_none(cls(), version)  # None where the default is null and this version has no null
        assert raw is None or cls.decode(raw, 0, version) == (cls(), len(raw))


@pytest.mark.parametrize("name", NAMES)
def test_a_field_comes_once_and_goes_once(name):
    """The versions that carry a field are neighbours; nothing is carried by no version at all."""
    cls = message_class(name)
    carried = {v: presence(cls, v) for v in versions(cls)}
    for path in frozenset().union(*carried.values()):
        has = [v for v in versions(cls) if path in carried[v]]
        assert has == list(range(has[0], has[-1] + 1)), f"{path}: {has}"


def test_versions_outside_the_schema_are_refused():
    for name in NAMES:
        cls = message_class(name)
        for version in (cls.MIN_VERSION - 1, cls.MAX_VERSION + 1):
            with pytest.raises(DecodeError, match="has no version"):
                cls.decode(bytes(100), 0, version)
