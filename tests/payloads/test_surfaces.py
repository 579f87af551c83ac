"""The record that ended a broker and a console, at each place that reads foreign Avro or JSON."""

from __future__ import annotations

import json
from io import StringIO

import pytest

from ottla.connect import avro
from ottla.connect.converters import ConvertError, converter
from ottla.console.messages import decode
from ottla.console.messages.decode import Decoder
from ottla.payloads.avro import AvroError
from ottla.payloads.json_text import MAX_JSON_DEPTH, read_json
from tests.payloads.fuzz import OneSchema

LIST = json.dumps({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]})
DEEP = b"\x02" * 20_000 + b"\0"
HEAD = b"\0\0\0\0\x01"
DEEP_JSON = b"[" * 900 + b"]" * 900


def test_the_console_shows_it_as_bytes_with_the_reason() -> None:
    shown = Decoder(OneSchema("AVRO", LIST), "registry").decode(HEAD + DEEP)
    assert shown.kind == "hex"
    assert "nests more than 200" in shown.note
    assert Decoder(OneSchema("AVRO", LIST)).decode(HEAD + b"\x02\0").tree == {"n": {"n": None}}


def test_the_console_shows_deep_json_as_text() -> None:
    assert Decoder(OneSchema("JSON", "{}")).decode(DEEP_JSON).kind == "text"
    assert "nested more than" in Decoder(OneSchema("JSON", "{}"), "json").decode(DEEP_JSON).note


def test_the_console_writes_what_it_shows_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 MB of numbers inside 199 arrays took 20 s and 400 MB for the indentation of each."""
    pieces: list[int] = []

    class Counted(StringIO):
        def write(self, text: str) -> int:
            pieces.append(len(text))
            return super().write(text)

    monkeypatch.setattr(decode, "StringIO", Counted)
    shown = Decoder(OneSchema("JSON", "{}"), "json").decode(b"[" * 199 + b"1," * 500_000 + b"1" + b"]" * 199)
    assert shown.text.endswith("cut here, after 65,536 characters")
    assert sum(pieces) < 70_000
    assert (
        Decoder(OneSchema("JSON", "{}"), "json").decode(b'{"a": [1, null]}').text
        == '{\n  "a": [\n    1,\n    null\n  ]\n}'
    )


def test_a_connector_has_an_error_of_that_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "schema_by_id", lambda _registry, _id: LIST)
    config = {"value.converter": "avro", "value.converter.schema.registry.url": "http://127.0.0.1:9"}
    read = converter(config, "value").read
    assert read(HEAD + b"\x02\0") == {"n": {"n": None}}
    with pytest.raises(ConvertError, match="nests more than 200"):
        read(HEAD + DEEP)
    with pytest.raises(ConvertError, match="nested more than"):
        converter({"value.converter": "json"}, "value").read(DEEP_JSON)


def test_a_pipeline_has_an_error_of_that_record() -> None:
    from ottla.pipelines.codecs import _avro_values

    read = _avro_values((LIST,), (LIST,), 3, "").read
    assert read(b"\x02\0") == {"n": {"n": None}}
    with pytest.raises(AvroError, match="nests more than 200"):
        read(DEEP)


def test_json_at_its_limit() -> None:
    assert read_json("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH)
    with pytest.raises(ValueError, match="nested more than"):
        read_json("[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1))
    assert len(read_json("[" + "{}," * 1000 + "[]]")) == 1001


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"\\uDFFF": 1}', '["\\ude00\\ud83d"]', '"\ud800"'])
def test_half_a_character_is_an_error_of_its_record(text: str) -> None:
    """It cannot be written as UTF-8: the console's page of the topic and the sink of a connector failed with it."""
    with pytest.raises(ValueError, match="surrogate"):
        read_json(text)
    if text.isascii():
        assert Decoder(OneSchema("JSON", "{}")).decode(text.encode()).line.encode()
        with pytest.raises(ConvertError, match="surrogate"):
            converter({"value.converter": "json", "value.converter.schemas.enable": "false"}, "value").read(
                text.encode()
            )
    for data in (b'"\xed\xa0\x80"', '"\\ud800"'.encode("utf-16"), b'"\xff"'):
        with pytest.raises(ValueError, match=r"surrogate|decode"):
            read_json(data)
    assert read_json('"é"'.encode("utf-16")) == read_json('\ufeff"é"'.encode()) == "é"
    assert read_json(b'"\\ud83d\\ude00"') == "\U0001f600"
