"""The rules hold for made-up schemas: a verdict of compatible means that every document, record or message is read."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ottla.registry.schemas.avro_explanation import Explanation
from ottla.registry.schemas.avro_schema import AvroSchema
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.json_schema import JsonSchema
from ottla.registry.schemas.proto_parser import parse_proto
from ottla.registry.schemas.proto_printer import print_proto
from ottla.registry.schemas.protobuf_schema import ProtobufSchema

MORE = int(os.environ.get("MORE", "1"))
"""MORE=20 and `--hypothesis-profile=explore` look further."""
NAMES = st.sampled_from(["a", "b", "ax"])

# Avro

avro_primitives = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


def _avro(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(
        st.tuples(NAMES, children, st.booleans()), max_size=3, unique_by=lambda field: field[0]
    ).map(lambda found: [{"name": n, "type": t, **({"default": None} if d else {})} for n, t, d in found])  # fmt: skip
    return st.one_of(
        children.map(lambda items: {"type": "array", "items": items}),
        children.map(lambda values: {"type": "map", "values": values}),
        st.lists(avro_primitives, min_size=1, max_size=3, unique=True),
        fields.filter(bool).map(lambda found: {"type": "record", "name": "R", "fields": found}),
    )


def _unique_names(schema: Any, counter: list[int]) -> Any:
    """Each record its own name, given in the same order for both sides."""
    if isinstance(schema, dict):
        copy = {key: _unique_names(value, counter) for key, value in schema.items()}
        if schema.get("type") == "record":
            counter[0] += 1
            copy["name"] = f"R{counter[0] % 2}x{counter[0]}"
        return copy
    return [_unique_names(each, counter) for each in schema] if isinstance(schema, list) else schema


avro_schemas = st.recursive(avro_primitives, _avro, max_leaves=5).map(lambda schema: _unique_names(schema, [0]))


@given(old=avro_schemas, new=avro_schemas)
@settings(max_examples=300)
def test_avro_has_a_reason_exactly_when_apache_says_no(old: Any, new: Any) -> None:
    reader, writer = AvroSchema(json.dumps(new)), AvroSchema(json.dumps(old))
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader.schema, writer.schema)
    reasons = Explanation(Budget()).compare(reader.schema, writer.schema, "/")
    assert bool(reasons) == (verdict.compatibility is SchemaCompatibilityType.incompatible)


# JSON Schema

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 8)
    | st.sampled_from([0.5, 2.5])
    | st.sampled_from(["", "a", "ab", "abcd"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
_small = st.integers(0, 4)


def _json(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = {
        "type": st.sampled_from(["string", "integer", "number", "object", "array", "null", ["string", "null"], ["integer", "object"]]),
        "maxLength": _small, "minLength": _small, "pattern": st.sampled_from(["^a", "b"]),
        "maximum": _small, "minimum": _small, "exclusiveMaximum": _small, "exclusiveMinimum": _small,
        "multipleOf": st.sampled_from([1, 2, 3, 4]),
        "properties": st.dictionaries(NAMES, children, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "x"]), children, max_size=2),
        "additionalProperties": st.booleans() | children,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "maxProperties": _small, "minProperties": _small,
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"maxLength": 2}]),
        "dependencies": st.dictionaries(NAMES, st.lists(NAMES, min_size=1, max_size=1), max_size=1),
        "items": children | st.lists(children, min_size=1, max_size=2),
        "additionalItems": st.booleans() | children,
        "maxItems": _small, "minItems": _small, "uniqueItems": st.booleans(), "contains": children,
        "enum": st.lists(json_values, min_size=1, max_size=3), "const": json_values,
        "anyOf": st.lists(children, min_size=1, max_size=2), "allOf": st.lists(children, min_size=1, max_size=2),
        "not": children,
    }  # fmt: skip
    return st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: keywords[name] for name in names})
    )


json_schemas = st.recursive(
    st.booleans() | st.sampled_from([{}, {"type": "string"}, {"type": "integer"}, {"type": "number"}]),
    _json,
    max_leaves=4,
)


@st.composite
def json_pairs(draw: Any) -> tuple[Any, Any]:
    """Two that have something in common: the second is the first with a keyword dropped, added or changed."""
    old = draw(json_schemas)
    if draw(st.booleans()) or isinstance(old, bool):
        return old, draw(json_schemas)
    new = dict(old)
    for name in draw(st.lists(st.sampled_from(sorted(old)), max_size=1)) if old else []:
        del new[name]
    other = draw(json_schemas)
    return old, {**new, **(other if isinstance(other, dict) else {})}


@given(pair=json_pairs(), documents=st.lists(json_values, min_size=5, max_size=20))
@settings(max_examples=300 * MORE, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_json_compatible_means_that_every_document_is_accepted(pair: tuple[Any, Any], documents: list[Any]) -> None:
    writer, reader = (JsonSchema(json.dumps(schema)) for schema in pair)
    if reader.incompatibilities(writer):
        return
    for document in documents:
        if writer.accepts(document):
            assert reader.accepts(document), (pair, document)


@given(schema=json_schemas)
@settings(max_examples=200)
def test_json_reads_itself(schema: Any) -> None:
    one, same = JsonSchema(json.dumps(schema)), JsonSchema(json.dumps(schema))
    assert one.incompatibilities(same) == []


# Protobuf

SCALARS = [
    "int32",
    "int64",
    "uint32",
    "bool",
    "sint32",
    "fixed32",
    "sfixed32",
    "fixed64",
    "float",
    "double",
    "string",
    "bytes",
]


@st.composite
def messages(draw: Any) -> str:
    """A proto2 file: numbers 1 to 5, scalars, an enum, a message, a map, labels, a oneof."""
    numbers = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True))
    types = st.sampled_from([*SCALARS, "E", "I", "map<string, int32>"])
    lines, members = [], []
    for number in numbers:
        kind = draw(types)
        where = draw(st.sampled_from(["optional", "repeated", "required", "oneof"]))
        if kind.startswith("map"):
            lines.append(f"{kind} f{number} = {number};")
        elif where == "oneof":
            members.append(f"{kind} f{number} = {number};")
        else:
            lines.append(f"{where} {kind} f{number} = {number};")
    oneof = f"oneof o {{ {' '.join(members)} }}" if members else ""
    inner = "enum E { A = 0; B = 1; } message I { optional int32 x = 1; }"
    return f'syntax = "proto2"; package p; message M {{ {inner} {" ".join(lines)} {oneof} }}'


_NUMBERS = st.integers(0, 1)


def _fill(message: Any, field: Any, draw: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)["k"] = draw(_NUMBERS)
        return
    if field.message_type is not None:
        target = getattr(message, field.name)
        (target.add() if field.is_repeated else target).x = draw(_NUMBERS) + 1
        return
    value = draw(_NUMBERS)
    typed = {9: str(value), 12: str(value).encode(), 8: bool(value), 1: float(value), 2: float(value)}.get(
        field.type, value
    )
    if field.is_repeated:
        getattr(message, field.name).extend([typed, typed])
    else:
        setattr(message, field.name, typed)


@given(old=messages(), new=messages(), data=st.data())
@settings(max_examples=150 * MORE)
def test_protobuf_compatible_means_that_values_are_read(old: str, new: str, data: Any) -> None:
    writer, reader = ProtobufSchema(old), ProtobufSchema(new)
    assume(not reader.incompatibilities(writer))
    written = writer.message_class("p.M")()
    for field in written.DESCRIPTOR.fields:
        _fill(written, field, data.draw)
    payload = written.SerializeToString()
    assert writer.validator()(b"\x00" + payload) is None
    read = reader.message_class("p.M").FromString(payload)
    for number, field in read.DESCRIPTOR.fields_by_number.items():
        given_field = written.DESCRIPTOR.fields_by_number.get(number)
        if given_field is None or given_field.type != field.type or given_field.is_repeated != field.is_repeated:
            continue
        if field.containing_oneof is not None or given_field.containing_oneof is not None:
            continue
        before, after = getattr(written, given_field.name), getattr(read, field.name)
        assert str(after) == str(before), (old, new, number)


@given(text=messages())
@settings(max_examples=100)
def test_protobuf_prints_what_it_reads(text: str) -> None:
    tree = parse_proto(text)
    assert parse_proto(print_proto(tree)) == tree
    schema = ProtobufSchema(text)
    assert ProtobufSchema(schema.serialized()).normalized() == schema.normalized()
    assert schema.incompatibilities(ProtobufSchema(schema.serialized())) == []


@given(text=st.text(alphabet='{}[]()<>=;,."/*\n message enum oneof map option 12aM', max_size=80))
@settings(max_examples=300)
def test_protobuf_refuses_nonsense_with_a_problem_and_nothing_else(text: str) -> None:
    from ottla.registry.schemas.parsed import SchemaProblem

    with contextlib.suppress(SchemaProblem):
        ProtobufSchema(text)


def test_protoc_agrees(tmp_path: Any) -> None:
    """Our descriptor is the one that protoc makes."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    text = """
        syntax = "proto2";
        package a.b;
        import "google/protobuf/any.proto";
        option java_package = "x.y";
        // a comment
        message M {
          option deprecated = true;
          reserved 20, 30 to 40;
          reserved "old";
          required int32 id = 1 [default = 7];
          optional string name = 2 [json_name = "NAME", deprecated = true];
          repeated Inner inner = 3;
          map<string, google.protobuf.Any> any_map = 4;
          oneof choice { bytes raw = 5; Kind kind = 6; }
          optional group Grp = 7 { optional bool on = 1; }
          extensions 100 to 199;
          message Inner { optional M parent = 1; repeated int64 nums = 2 [packed = true]; }
          enum Kind { option allow_alias = true; A = 0; B = 1; C = 1; }
        }
        extend M { optional int32 ext = 100; }
        service S { rpc Do (M) returns (stream M.Inner) { option deprecated = true; } }
    """
    (tmp_path / "default.proto").write_text(text)
    include = f"{__import__('pathlib').Path(protoc.__file__).parent}/_proto"
    out = tmp_path / "out"
    assert protoc.main(["", f"-I{tmp_path}", f"-I{include}", f"--descriptor_set_out={out}", "default.proto"]) == 0
    [expected] = FileDescriptorSet.FromString(out.read_bytes()).file
    found = ProtobufSchema(text)._descriptor
    # protoc leaves json_name out of what it writes unless it was given.
    for message in (*found.message_type, *(i for m in found.message_type for i in m.nested_type)):
        for field in message.field:
            if not (field.name == "name" and message.name == "M"):
                field.ClearField("json_name")
    for field in found.extension:
        field.ClearField("json_name")
    for message in (*expected.message_type, *(i for m in expected.message_type for i in m.nested_type)):
        for field in message.field:
            if not (field.name == "name" and message.name == "M"):
                field.ClearField("json_name")
    for field in expected.extension:
        field.ClearField("json_name")
    for message in (found.message_type[0], expected.message_type[0]):
        inner = sorted(message.nested_type, key=lambda each: each.name)
        del message.nested_type[:]
        message.nested_type.extend(inner)
    assert str(found) == str(expected)
