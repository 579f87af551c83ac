"""Values and the properties format against recorded verdicts of Kafka's parser and Java's reader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.env.recorded import golden

from ottla.env.config.properties import MalformedEscape, format_property, parse_properties
from ottla.env.config.settings import Kind
from ottla.env.config.values import BadValue, parse_kind, render


@pytest.mark.parametrize("case", golden("cases")["properties"], ids=lambda case: repr(case["text"]))
def test_a_text_reads_as_java_reads_it(case: dict[str, Any]) -> None:
    if case["error"]:
        with pytest.raises(MalformedEscape, match="four hexadecimal digits"):
            parse_properties(case["text"])
    else:
        assert parse_properties(case["text"]) == case["result"]


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_formatted_reads_back(pairs: dict[str, str]) -> None:
    text = "\n".join(format_property(key, value) for key, value in pairs.items())
    assert parse_properties(text) == pairs


# Classes are not loaded here, and a password is only ever shown hidden.
PARSED = [case for case in golden("cases")["parse"] if case["type"] not in ("CLASS", "PASSWORD")]


@pytest.mark.parametrize("case", PARSED, ids=lambda case: f"{case['type']}-{case['value']!r}")
def test_a_value_parses_as_in_kafka(case: dict[str, Any]) -> None:
    kind = Kind[case["type"]]
    try:
        outcome = (render(kind, parse_kind("x", kind, case["value"])), None)
    except BadValue as error:
        outcome = (None, f"ConfigException: {error}")
    assert outcome == (case.get("result"), case["error"])


@given(st.floats())
def test_a_double_prints_so_that_it_reads_back(value: float) -> None:
    text = render(Kind.DOUBLE, value)
    assert text is not None
    back = parse_kind("x", Kind.DOUBLE, text)
    assert back == value or (back != back and value != value)
