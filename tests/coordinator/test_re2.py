"""RE2 expressions over topic names, compared with recorded results of RE2/J (the library of Apache Kafka 4.3.1)."""

from __future__ import annotations

import time

import pytest

from ottla.coordinator.groups.consumer.re2 import Pattern, PatternError

NAMES = (
    "",
    "foo",
    "foo-1",
    "bar.baz",
    "FOO",
    "a",
    "aa",
    "aaa",
    "ab",
    "abab",
    "orders_2024",
    "t-[x",
    "x1y2",
    "a.b",
    "__consumer_offsets",
    "a-b",
)
"""The digits below: whether the whole name matches, in this order."""

RE2J = {
    "foo.*": "0110000000000000",
    "foo|bar.*": "0101000000000000",
    "(foo": "ERR missing closing )",
    "foo)": "ERR regexp/syntax: internal error",
    "[a-": "ERR missing closing ]",
    "a{2}": "0000001000000000",
    "a{2,3}": "0000001100000000",
    "a{1001}": "ERR invalid repeat count",
    "a{3,2}": "ERR invalid repeat count",
    "a**": "ERR invalid nested repetition operator",
    "a*+": "ERR invalid nested repetition operator",
    "a+?": "0000011100000000",
    "*a": "ERR missing argument to repetition operator",
    "(?i)foo": "0100100000000000",
    "(?i:fo)o": "0100000000000000",
    "(?=x)": "ERR invalid or unsupported Perl syntax",
    "(?!x)": "ERR invalid or unsupported Perl syntax",
    "(?<n>a)b": "0000000010000000",
    "(?P<n>a)b": "0000000010000000",
    "(?P<n>a)(?P<n>b)": "ERR duplicate capture group name",
    "(?P<1>a)": "0000010000000000",
    "\\d+": "0000000000000000",
    "x\\dy\\d": "0000000000001000",
    "[[:alpha:]]+": "0100111111000000",
    "[^[:alpha:]]+": "0000000000000000",
    "[[:foo:]]": "ERR invalid character class range",
    "\\p{L}+": "0100111111000000",
    "\\pL+": "0100111111000000",
    "\\p{Greek}": "0000000000000000",
    "\\p{Foo}": "ERR invalid character class range",
    "\\1": "ERR invalid escape sequence",
    "\\8": "ERR invalid escape sequence",
    "\\x61": "0000010000000000",
    "\\x{61}": "0000010000000000",
    "\\x{zz}": "ERR invalid escape sequence",
    "\\Qa.b\\E": "0000000000000100",
    "\\Qa.b": "0000000000000100",
    "a.b": "0000000000000101",
    "\\": "ERR trailing backslash at end of expression",
    "[\\d-x]+": "0000000000000000",
    "[a-\\d]": "ERR invalid escape sequence",
    "[z-a]": "ERR invalid character class range",
    "[]a]": "0000010000000000",
    "[^]a]+": "0110100000111010",
    "a{,2}": "0000000000000000",
    "a{2": "0000000000000000",
    "(a|b)*": "1000011111000000",
    "((a|b)(a|b)){2}": "0000000001000000",
    "^foo$": "0100000000000000",
    "\\Afoo\\z": "0100000000000000",
    "\\bfoo\\b.*": "0110000000000000",
    "a\\Bb": "0000000010000000",
    ".*_offsets": "0000000000000010",
    "[a-z]+[-._][a-z0-9]+": "0011000000100101",
    "(?s).*": "1111111111111111",
    "(?z)a": "ERR invalid or unsupported Perl syntax",
    "(?i-s)FOO": "0100100000000000",
    "(?-)a": "ERR invalid or unsupported Perl syntax",
    "(?i": "ERR invalid or unsupported Perl syntax",
    "()": "1000000000000000",
    "(|a)": "1000010000000000",
    "a||b": "1000010000000000",
    "x*": "1000000000000000",
    "(a*)*": "1000011100000000",
    "[[:^alpha:]]": "0000000000000000",
    "\\C": "ERR invalid escape sequence",
    "\\Z": "ERR invalid escape sequence",
    "(?U)a+": "0000011100000000",
    "\\pN+": "0000000000000000",
    "\\07": "0000000000000000",
    "\\141": "0000010000000000",
    "\\v": "0000000000000000",
    "[\\x61-\\x63]+": "0000011111000000",
}
"""The expression, and which names match; or RE2/J's own words for what is wrong with it."""


@pytest.mark.parametrize("expression", RE2J, ids=repr)
def test_as_re2j(expression: str) -> None:
    try:
        pattern = Pattern(expression)
    except PatternError as error:
        said = f"ERR {error}"
    else:
        said = "".join("1" if pattern.matches(name) else "0" for name in NAMES)
    assert said == RE2J[expression]


def test_an_expression_that_would_keep_a_backtracker_busy_for_years() -> None:
    began = time.monotonic()
    assert not Pattern("(a*)*(a|aa)+b").matches("a" * 249)
    assert Pattern("(a?){200}a{200}").matches("a" * 249)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("expression", ["(a{1000}){1000}", "((((a{99}){99}){99}){99})", "(" * 5000 + ")" * 5000])
def test_what_would_fill_the_memory_is_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        Pattern(expression)
