"""Agreement with kio, which someone else generated from Kafka's schemas: same values, same bytes, both ways."""

from __future__ import annotations

from random import Random

import pytest
from tests.protocol import kio_values
from tests.protocol.message_values import NAMES, message_class, presence, versions

SHARED = kio_values.shared()
VALUES_PER_VERSION = 8


@pytest.mark.parametrize("name", sorted({name for name, _ in SHARED}))
def test_agreement(name):
    cls, random = message_class(name), Random(f"kio {name}")
    both = [version for version in versions(cls) if (name, version) in SHARED]
    assert both
    for version in both:
        entity_class = kio_values.entity_class(SHARED[name, version])
        for _ in range(VALUES_PER_VERSION):
            entity = kio_values.random_entity(random, entity_class)
            raw = kio_values.encode(entity)
            message, end = cls.decode(raw, 0, version)
            assert end == len(raw)
            assert kio_values.plain_ours(message, presence(cls, version)) == kio_values.plain_kio(entity)
            assert message.to_bytes(version) == raw
            assert kio_values.decode(entity_class, raw) == (entity, len(raw))


def test_what_kio_does_not_know():
    """The list is here to be read: kio covers requests, responses, headers and control records, not the records of
    metadata, of the coordinators and of storage. Those are compared with Kafka's own classes (test_codec_java).
    """
    unknown = [
        name for name in NAMES if not any((name, version) in SHARED for version in versions(message_class(name)))
    ]
    assert [name for name in unknown if name.endswith(("Request", "Response", "Header"))] == []
    newer = [(n, v) for n in NAMES if n not in unknown for v in versions(message_class(n)) if (n, v) not in SHARED]
    print(f"not in kio: {', '.join(unknown)}; versions not in kio: {newer}")
