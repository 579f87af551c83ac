"""Objects and arrays: which members a content model accepts, and whether the reader's model still does.

A content model is open (any further member), closed (none) or partially open (those of a pattern or a schema). Adding a
property to an open model is incompatible, for the other schema accepted anything under that name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.registry.schemas.json_documents import Side
    from ottla.registry.schemas.json_rules import Comparison

_TRUE: Any = True


def compare_object(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    _properties(run, writer, reader, path)
    _required(run, writer, reader, path)
    _patterns(run, writer, reader, path)
    _additional_properties(run, writer, reader, path)
    _dependencies(run, writer, reader, path)
    names = reader.schema.get("propertyNames")
    if names is not None and not _names_hold(run, writer, reader):
        run.add("PROPERTY_NAMES_CHANGED", f"{path}propertyNames", "fewer names are accepted than before")


def _names_hold(run: Comparison, writer: Side, reader: Side) -> bool:
    names = reader.at(reader.schema["propertyNames"])
    return names.anything or run.holds(writer.at(writer.schema.get("propertyNames", _TRUE)), names)


def rest_of(side: Side) -> Any:
    """The schema for members that nothing else names: True (open), False (closed) or a schema (partially open)."""
    return side.schema.get("additionalProperties", _TRUE)


def _member(run: Comparison, side: Side, name: str) -> list[Any]:
    """Every schema that a member called `name` must satisfy."""
    schema = side.schema
    member_schemas = [schema["properties"][name]] if name in schema.get("properties", {}) else []
    member_schemas += [
        inner for pattern, inner in schema.get("patternProperties", {}).items() if run.patterns.matches(pattern, name)
    ]
    return member_schemas or [rest_of(side)]


def _properties(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    old, new = writer.schema.get("properties", {}), reader.schema.get("properties", {})
    run.budget.spend(len(old) + len(new))
    for name in sorted(old.keys() | new.keys()):
        at = f"{path}properties/{name}/"
        reader_sides = [reader.at(schema) for schema in _member(run, reader, name)]
        writer_sides = [writer.at(schema) for schema in _member(run, writer, name)]
        if all(target.anything for target in reader_sides) or any(source.nothing for source in writer_sides):
            continue
        if name in old and name in new:
            for target in reader_sides:
                if not any(run.holds(source, target) for source in writer_sides):
                    run.compare(writer_sides[0], target, at)
        elif any(not any(run.holds(source, target) for source in writer_sides) for target in reader_sides):
            run.add(*_added_or_removed(writer, reader, name, at))


def _added_or_removed(writer: Side, reader: Side, name: str, at: str) -> tuple[str, str, str]:
    if name in reader.schema.get("properties", {}):
        partly = not writer.at(rest_of(writer)).anything or "patternProperties" in writer.schema
        if partly:
            kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            return kind, at, f"the property {name} is accepted by the other schema, but not with this schema"
        required = name in reader.schema.get("required", ())
        kind = f"{'REQUIRED' if required else 'OPTIONAL'}_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        return kind, at, f"the other schema accepts anything as {name}; only a closed content model can be added to"
    if reader.at(rest_of(reader)).nothing and "patternProperties" not in reader.schema:
        kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
        return kind, at, f"the property {name} is not accepted any more"
    kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return kind, at, f"the property {name} is accepted only with another schema"


def _required(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    before = set(writer.schema.get("required", ()))
    properties = reader.schema.get("properties", {})
    for name in sorted(set(reader.schema.get("required", ())) - before):
        schema = properties.get(name)
        if isinstance(schema, dict) and "default" in schema and not run.strict:
            continue
        if name in properties and name not in writer.schema.get("properties", {}):
            closed = not writer.at(rest_of(writer)).anything
            kind = f"REQUIRED_PROPERTY_ADDED_TO_{'UNOPEN' if closed else 'OPEN'}_CONTENT_MODEL"
            run.add(kind, f"{path}properties/{name}", f"the property {name} is required and has no default")
        else:
            run.add("REQUIRED_ATTRIBUTE_ADDED", f"{path}required/{name}", f"{name} is required now, without a default")


def _patterns(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    """Names that only a pattern of one side matches."""
    old, new = writer.schema.get("patternProperties", {}), reader.schema.get("patternProperties", {})
    closed = writer.at(rest_of(writer)).nothing
    for pattern, schema in sorted(new.items()):
        at = f"{path}patternProperties/{pattern}/"
        target = reader.at(schema)
        if pattern in old:
            run.compare(writer.at(old[pattern]), target, at)
            continue
        if not closed and not run.holds(writer.at(rest_of(writer)), target):
            run.add("PATTERN_PROPERTY_ADDED", at, "members of this pattern were accepted with any schema")
        for other, inner in old.items():
            if not run.holds(writer.at(inner), target):
                run.add("PATTERN_PROPERTY_ADDED", at, f"members may also match {other}, whose schema accepts more")
    for pattern, schema in sorted(old.items()):
        if pattern not in new:
            run.compare(writer.at(schema), reader.at(rest_of(reader)), f"{path}patternProperties/{pattern}/")
            for name, inner in reader.schema.get("properties", {}).items():
                if name not in writer.schema.get("properties", {}) and run.patterns.matches(pattern, name):
                    run.compare(writer.at(schema), reader.at(inner), f"{path}properties/{name}/")


def _additional_properties(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    old, new = writer.at(rest_of(writer)), reader.at(rest_of(reader))
    if new.anything or old.nothing or run.holds(old, new):
        return
    kind = f"ADDITIONAL_PROPERTIES_{'REMOVED' if new.nothing else 'NARROWED'}"
    run.add(kind, f"{path}additionalProperties", "fewer additional properties are accepted than before")


def _dependencies(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    old_names, old_schemas = _split(writer.schema)
    new_names, new_schemas = _split(reader.schema)
    for name, required_names in sorted(new_names.items()):
        at = f"{path}dependencies/{name}"
        earlier_names = old_names.get(name)
        if earlier_names is None:
            if required_names - set(writer.schema.get("required", ())):
                run.add("DEPENDENCY_ARRAY_ADDED", at, f"{name} asks for {sorted(required_names)} now")
        elif not required_names <= earlier_names:
            kind = "DEPENDENCY_ARRAY_EXTENDED" if earlier_names <= required_names else "DEPENDENCY_ARRAY_CHANGED"
            run.add(kind, at, f"{name} asks for {sorted(required_names - earlier_names)} now")
    for name, reader_schemas in sorted(new_schemas.items()):
        at = f"{path}dependencies/{name}"
        for reader_schema in map(reader.at, reader_schemas):
            writer_schemas = [writer.at(schema) for schema in old_schemas.get(name, ())]
            if not writer_schemas:
                if not reader_schema.anything:
                    run.add("DEPENDENCY_SCHEMA_ADDED", at, f"{name} brings a schema with it now")
            elif not any(run.holds(writer_schema, reader_schema) for writer_schema in writer_schemas):
                run.compare(writer_schemas[0], reader_schema, f"{at}/")


def _split(schema: dict[str, Any]) -> tuple[dict[str, set[str]], dict[str, list[Any]]]:
    """Draft 7's dependencies and the two keywords that came after it."""
    names = {name: set(value) for name, value in schema.get("dependentRequired", {}).items()}
    schemas = {name: [value] for name, value in schema.get("dependentSchemas", {}).items()}
    for name, value in schema.get("dependencies", {}).items():
        if isinstance(value, list):
            names.setdefault(name, set()).update(value)
        else:
            schemas.setdefault(name, []).append(value)
    return names, schemas


# Arrays


def items_of(side: Side) -> tuple[list[Any], Any]:
    """The schemas of the first items, and the one of the rest."""
    schema = side.schema
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", _TRUE)
    items = schema.get("items", _TRUE)
    return (items, schema.get("additionalItems", _TRUE)) if isinstance(items, list) else ([], items)


def compare_array(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    old, old_rest = items_of(writer)
    new, new_rest = items_of(reader)
    for index in range(max(len(old), len(new))):
        writer_item = writer.at(old[index] if index < len(old) else old_rest)
        reader_item = reader.at(new[index] if index < len(new) else new_rest)
        if writer_item.nothing or reader_item.anything:
            continue
        at = f"{path}items/{index}/"
        if index < len(old) and index < len(new):
            run.compare(writer_item, reader_item, at)
        elif not run.holds(writer_item, reader_item):
            run.add(*_item_changed(writer_item, reader_item, at, added=index < len(new)))
    writer_item, reader_item = writer.at(old_rest), reader.at(new_rest)
    if not (writer_item.nothing or reader_item.anything):
        if not old and not new and "items" in writer.schema and "items" in reader.schema:
            run.compare(writer_item, reader_item, f"{path}items/")
        elif not run.holds(writer_item, reader_item):
            kind = "ADDITIONAL_ITEMS_REMOVED" if reader_item.nothing else "ADDITIONAL_ITEMS_NARROWED"
            run.add(kind, f"{path}items", "fewer further items are accepted than before")
    _contains(run, writer, reader, path)


def _item_changed(writer_item: Side, reader_item: Side, at: str, *, added: bool) -> tuple[str, str, str]:
    if added:
        kind = "ITEM_ADDED_TO_OPEN_CONTENT_MODEL" if writer_item.anything else (
            "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        )  # fmt: skip
        return kind, at, "the other schema accepts more at this place"
    if reader_item.nothing:
        return "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", at, "there may be no item at this place any more"
    return "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at, "the item fits another schema only"


def _contains(run: Comparison, writer: Side, reader: Side, path: str) -> None:
    old, new = writer.schema, reader.schema
    if "contains" not in new:
        return
    if "contains" not in old or not run.same.holds(writer.at(old["contains"]), reader.at(new["contains"])):
        run.add("CONTAINS_CHANGED", f"{path}contains", "contains may be removed, but not added or changed")
        return
    if new.get("minContains", 1) > old.get("minContains", 1):
        run.add("MIN_CONTAINS_INCREASED", f"{path}minContains", "more items must match contains than before")
    if "maxContains" in new and new["maxContains"] < old.get("maxContains", math.inf):
        run.add("MAX_CONTAINS_DECREASED", f"{path}maxContains", "fewer items may match contains than before")
