"""The committed code is what the generator makes of Kafka's schemas, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kafka_jars import Unavailable, schemas
from tools.protocol.__main__ import generate

import ottla.protocol.generated

COMMITTED = Path(ottla.protocol.generated.__file__).parent


@pytest.mark.interop
def test_generated_code_is_up_to_date(tmp_path):
    try:
        schemas(tmp_path / "schemas")
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert generate(tmp_path / "schemas", tmp_path / "generated") > 250
    fresh = {path.name: path.read_bytes() for path in (tmp_path / "generated").iterdir()}
    committed = {path.name: path.read_bytes() for path in COMMITTED.glob("*.py")}
    assert sorted(committed) == sorted(fresh)
    assert [name for name in fresh if fresh[name] != committed[name]] == []
