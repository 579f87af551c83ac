"""Decisions on pairs of schemas, in each language and each mode, against the verdicts written down beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.registry.compatibility import LEVELS, Earlier, check
from ottla.registry.schemas.parse import parse_schema

CORPUS = Path(__file__).parent / "corpus"


class Pair(NamedTuple):
    language: str
    why: str
    old: str
    new: str
    backward: bool
    forward: bool


def avro(text: str) -> str:
    """R[...] and f(...) as the file's head explains them."""
    while match := re.search(r"\bf\((\w+),([^()]*)\)", text):
        name, rest = match.groups()
        values = json.loads(f"[{_records(rest)}]")
        field = {"name": name, "type": values[0], **({"default": values[1]} if len(values) > 1 else {})}
        text = text[: match.start()] + json.dumps(field) + text[match.end() :]
    return _records(text)


def _records(text: str) -> str:
    while match := re.search(r"\b(R\d?)\[", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        fields = text[match.end() : end - 1]
        record = f'{{"type":"record","name":"{match.group(1)}","fields":[{fields}]}}'
        text = text[: match.start()] + record + text[end:]
    return text


def protobuf(text: str) -> str:
    if text.startswith("@"):
        return f'syntax = "proto3"; {text[1:]}'
    syntax, body = ("proto2", text[2:]) if text.startswith("M2") else ("proto3", text[1:])
    return f'syntax = "{syntax}"; message M {body}'


def closed(text: str) -> str:
    return text.replace("{C}", '"additionalProperties":false')


WRITTEN = {"avro": avro, "json": closed, "protobuf": protobuf}


def pairs() -> Iterator[Pair]:
    for language, write in WRITTEN.items():
        for line in (CORPUS / f"{language}.txt").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                verdict, old, new, why = (part.strip() for part in line.split(" | "))
                backward, forward = (word == "yes" for word in verdict.split())
                yield Pair(language, why, write(old), write(new), backward, forward)
    yield from matrices()


def matrices() -> Iterator[Pair]:
    for block in (CORPUS / "scalars.txt").read_text().split("\n["):
        head, _, table = block.partition("\n")
        language = head.partition("]")[0].lstrip("[")
        if language not in WRITTEN:
            continue
        rows = [line.split() for line in table.splitlines() if line.strip()]
        columns = rows[0][1:]
        reads = {
            (row[0], column): mark == "y" for row in rows[1:] for column, mark in zip(columns, row[1:], strict=True)
        }
        for old in columns:
            for new in columns:
                texts = [_scalar(language, name) for name in (old, new)]
                yield Pair(language, f"{old} to {new}", *texts, reads[new, old], reads[old, new])


def _scalar(language: str, name: str) -> str:
    if language == "protobuf":
        return f'syntax = "proto3"; message M {{ {name} a = 1; }}'
    return json.dumps(name) if language == "avro" else json.dumps({"type": name})


PAIRS = list(pairs())


def test_the_corpus_is_large_enough() -> None:
    assert len(PAIRS) >= 300
    counts = {language: sum(pair.language == language for pair in PAIRS) for language in WRITTEN}
    assert min(counts.values()) >= 100, counts
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 150_000


@pytest.mark.parametrize("language", list(WRITTEN))
def test_decisions(language: str) -> None:
    """Every pair in every mode; all that are wrong are told at once."""
    wrong = []
    for pair in PAIRS:
        if pair.language != language:
            continue
        old, new = (parse_schema(language.upper(), text) for text in (pair.old, pair.new))
        for level in LEVELS:
            expected = (
                level == "NONE"
                or (level.startswith("BACKWARD") and pair.backward)
                or (level.startswith("FORWARD") and pair.forward)
                or (level.startswith("FULL") and pair.backward and pair.forward)
            )
            found = check(level, new, [Earlier(1, old)])
            if bool(found) == expected:
                reasons = [f"{each.reason.kind} {each.reason.path}" for each in found]
                wrong.append(f"{level} {pair.why}: {pair.old} -> {pair.new}: {reasons}")
            for each in found:
                assert each.reason.message
                assert "/" in each.reason.path
    assert wrong == []


@pytest.mark.parametrize("language", list(WRITTEN))
def test_the_canonical_form_is_its_own(language: str) -> None:
    for text in {text for pair in PAIRS if pair.language == language for text in (pair.old, pair.new)}:
        parsed = parse_schema(language.upper(), text)
        again = parse_schema(language.upper(), parsed.canonical)
        assert again.canonical == parsed.canonical
        normal = parse_schema(language.upper(), parsed.normalized())
        assert normal.normalized() == parsed.normalized()
        assert not parsed.incompatibilities(again)
        assert not normal.incompatibilities(parsed)
        serialized = parse_schema(language.upper(), parsed.serialized())
        assert serialized.normalized() == parsed.normalized()
