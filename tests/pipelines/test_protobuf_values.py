"""Protobuf values without Spark's JVM: types, both directions, presence, and values that do not fit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from ottla.model.user_error import UserError
from ottla.pipelines.arrow_values import decoded_values, encoded_values
from ottla.pipelines.protobuf import MAX_DEPTH_OPTION, UNSIGNED_OPTION, MessageTypes, message_class, message_reader
from ottla.pipelines.protobuf_writing import message_encoder
from tests.pipelines.messages import Everything, Tree

NAME, TREE = "tests.pipelines.messages:Everything", "tests.pipelines.messages:Tree"
AT = datetime(2026, 11, 18, 12, 0, 0, 5, UTC)
SPARK = {
    "i": "int", "u": "bigint", "big": "bigint", "z": "bigint", "raw": "binary", "colour": "string",
    "colours": "array<string>", "counts": "map<string,bigint>", "firsts": "map<int,struct<n:int>>", "word": "string",
    "first": "struct<n:int>", "maybe": "int", "at": "timestamp", "took": "interval day to second", "free": "string",
    "wrapped": "bigint", "times": "array<timestamp>", "list": "array<struct<n:int>>", "f": "float", "text": "string",
    "yes": "boolean", "fixed": "bigint",
}  # fmt: skip
FILLED = {
    "i": -5, "u": 4_000_000_000, "big": 7, "z": -7, "raw": b"\xff\0", "colour": "RED", "colours": ["NONE", "RED"],
    "counts": [("a", 1)], "firsts": [(3, {"n": 4})], "word": None, "first": {"n": 0}, "maybe": 0, "at": AT,
    "took": timedelta(seconds=-1, microseconds=-5), "free": '{"a": [1.0, null]}', "wrapped": 0,
    "times": [AT, AT], "list": [{"n": 1}, {"n": 2}], "f": 0.5, "text": "", "yes": True, "fixed": 8,
}  # fmt: skip


def types(name=NAME, **options):
    made = MessageTypes(options).message_type(message_class(name).DESCRIPTOR)
    return made, to_arrow_type(made, timezone="UTC")


def read(payloads, name=NAME, **options):
    parse = message_reader(name, tuple(sorted(options.items())))
    rows = decoded_values(pa.array(payloads, pa.binary()), parse, types(name, **options)[1]).to_pylist()
    return [(row["value"], row["error"]) for row in rows]


def test_every_kind_of_field_in_both_directions():
    spark, columns = types()
    assert {field.name: field.dataType.simpleString() for field in spark} == SPARK
    (payload,) = encoded_values(pa.array([FILLED], columns), message_encoder(NAME, columns)).to_pylist()
    message = Everything.FromString(payload)
    assert (message.WhichOneof("choice"), message.HasField("maybe"), message.HasField("wrapped")) == (
        "first",
        True,
        True,
    )
    assert (message.took.seconds, message.took.nanos, message.at.nanos) == (-1, -5000, 5000)
    assert (message.raw, list(message.colours), message.firsts[3].n) == (b"\xff\0", [0, 1], 4)
    ((value, error),) = read([payload])
    assert error is None
    assert value == FILLED


def test_what_is_not_set_is_null_where_the_field_has_presence():
    ((value, error),) = read([b""])
    assert error is None
    assert {name for name, one in value.items() if one is None} == {
        "word", "first", "maybe", "at", "took", "free", "wrapped", "text",
    }  # fmt: skip
    assert (value["i"], value["colour"], value["counts"], value["list"]) == (0, "NONE", [], [])


def test_unsigned_numbers_and_numbers_beyond_spark():
    big = Everything(big=(1 << 64) - 1, fixed=1 << 63).SerializeToString()
    (outside, inside) = read([big, Everything(big=(1 << 63) - 1).SerializeToString()])
    assert outside[0] is None
    assert outside[1] is not None
    assert inside[0]["big"] == (1 << 63) - 1
    option = {UNSIGNED_OPTION: "true"}
    ((value, error),) = read([big], **option)
    assert (value["big"], value["fixed"], error) == (Decimal((1 << 64) - 1), Decimal(1 << 63), None)
    columns = types(**option)[1]
    (again,) = encoded_values(pa.array([value], columns), message_encoder(NAME, columns)).to_pylist()
    assert Everything.FromString(again).big == (1 << 64) - 1


def test_enum_numbers_without_a_name_are_kept():
    ((value, error),) = read([Everything(colour=9).SerializeToString()])
    assert (value["colour"], error) == ("9", None)
    columns = pa.struct([("colour", pa.string())])
    (again,) = encoded_values(pa.array([{"colour": "9"}], columns), message_encoder(NAME, columns)).to_pylist()
    assert Everything.FromString(again).colour == 9


def test_times_out_of_range_and_broken_messages_are_errors_of_their_records():
    far = Everything()
    far.at.seconds = 1 << 60
    text = b"\x52\x01\xff"  # field 10, a string that is not UTF-8
    rows = read([far.SerializeToString(), b"\x08", text, Everything(i=1).SerializeToString()])
    assert [error is None for _, error in rows] == [False, False, False, True]


def test_recursion_is_refused_by_name_or_bounded():
    with pytest.raises(UserError, match=rf"the message shop\.Tree contains itself: set the option {MAX_DEPTH_OPTION}"):
        types(TREE)
    tree = Tree(v=1, left=Tree(v=2, left=Tree(v=3)), rest=[Tree(v=4)])
    option = {MAX_DEPTH_OPTION: "2"}
    assert types(TREE, **option)[0].simpleString() == "struct<v:int,left:struct<v:int>,rest:array<struct<v:int>>>"
    assert read([tree.SerializeToString()], TREE, **option) == [({"v": 1, "left": {"v": 2}, "rest": [{"v": 4}]}, None)]


UNFIT = [
    ({"i": pa.int64()}, {"i": 1 << 31}, "the column i has a value that its Protobuf field does not take"),
    ({"colour": pa.string()}, {"colour": "BLUE"}, "the column colour has a value .* no value 'BLUE'"),
    ({"word": pa.string(), "first": pa.struct([("n", pa.int32())])}, {"word": "a", "first": {"n": 1}},
     "the columns word and first are both filled: shop.Everything.choice is one of them"),
    ({"free": pa.string()}, {"free": "{"}, "the column free has a value"),
    ({"list": pa.list_(pa.struct([("n", pa.int64())]))}, {"list": [{"n": 1 << 40}]}, r"the column list\.n has a value"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "row", "words"), UNFIT)
def test_a_value_that_does_not_fit_names_its_column(columns, row, words):
    kind = pa.struct(list(columns.items()))
    with pytest.raises(UserError, match=words):
        encoded_values(pa.array([row], kind), message_encoder(NAME, kind))


@pytest.mark.parametrize(
    ("column", "kind"),
    [("i", pa.string()), ("raw", pa.string()), ("at", pa.int64()), ("list", pa.int32()), ("counts", pa.string())],
)
def test_columns_that_do_not_fit_are_refused_before_the_first_row(column, kind):
    with pytest.raises(UserError, match=f"the column {column} of type {kind}"):
        message_encoder(NAME, pa.struct([(column, kind)]))
