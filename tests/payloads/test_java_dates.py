"""Patterns of Java's SimpleDateFormat; the expectations are what Java 17 prints for the same patterns."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from ottla.payloads.java_dates import DatePattern

AT_MS = 1_520_000_000_123  # 2018-03-02T14:13:20.123Z
INDIA = timezone(timedelta(hours=5, minutes=30), "IST")


@pytest.mark.parametrize(
    ("pattern", "utc", "india"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2018-03-02 14:13:20:123", "2018-03-02 19:43:20:123"),
        ("yy/M/d h a", "18/3/2 2 PM", "18/3/2 7 PM"),
        ("EEE, EEEE, MMM, MMMM, DDD", "Fri, Friday, Mar, March, 061", "Fri, Friday, Mar, March, 061"),
        ("'at' HH 'o''clock'", "at 14 o'clock", "at 19 o'clock"),
        ("z Z X XX XXX", "UTC +0000 Z Z Z", "IST +0530 +05 +0530 +05:30"),
    ],
)
def test_written(pattern, utc, india):
    assert DatePattern(pattern).write(AT_MS) == utc
    assert DatePattern(pattern).write(AT_MS, INDIA) == india


def test_read_again():
    pattern = DatePattern("yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    assert pattern.read(pattern.write(AT_MS, INDIA)) == AT_MS


def test_a_letter_without_a_meaning():
    with pytest.raises(ValueError, match="Illegal pattern character 'b'"):
        DatePattern("yyyy b")
