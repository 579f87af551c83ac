"""A Protobuf message with every kind of field, made without protoc; `tests.pipelines.messages:Everything` names its class."""

from __future__ import annotations

from ottla.registry.schemas.protobuf_schema import ProtobufSchema

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
enum Colour { NONE = 0; RED = 1; }
message First { int32 n = 1; message Deep { string s = 1; } }
message Everything {
  int32 i = 1; uint32 u = 2; uint64 big = 3; sint64 z = 4; bytes raw = 5; Colour colour = 6;
  repeated Colour colours = 7; map<string, int64> counts = 8; map<int32, First> firsts = 9;
  oneof choice { string word = 10; First first = 11; }
  optional int32 maybe = 12;
  google.protobuf.Timestamp at = 13; google.protobuf.Duration took = 14; google.protobuf.Struct free = 15;
  google.protobuf.Int64Value wrapped = 16; repeated google.protobuf.Timestamp times = 17; repeated First list = 18;
  float f = 19; google.protobuf.StringValue text = 20; bool yes = 21; fixed64 fixed = 22;
}
message Tree { int32 v = 1; Tree left = 2; repeated Tree rest = 3; }
"""
_schema = ProtobufSchema(TEXT)
Everything = _schema.message_class("shop.Everything")
First = _schema.message_class("shop.First")
Deep = _schema.message_class("shop.First.Deep")
Tree = _schema.message_class("shop.Tree")
