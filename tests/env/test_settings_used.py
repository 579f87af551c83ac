"""A setting that nothing reads says so: a start then tells whoever sets it, and the docs tell everybody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.env.config.broker.config import BrokerConfig

SOURCES = Path(__file__).parents[2] / "src" / "ottla"


def _code() -> str:
    """Everything but the declarations: those are `name: type = setting(...)`."""
    text = "\n".join(path.read_text() for path in SOURCES.rglob("*.py") if "generated" not in path.parts)
    return re.sub(r"^    \w+: [^=\n]+= setting\(", "", text, flags=re.MULTILINE)


CODE = _code()
WORDS = set(re.findall(r"\w+", CODE))


@pytest.mark.parametrize(
    "name", sorted(name for name, row in BrokerConfig.TABLE.items() if not row.effect.startswith("no effect"))
)
def test_a_setting_is_read_or_says_that_it_is_not(name: str) -> None:
    assert name.replace(".", "_") in WORDS or f'"{name}"' in CODE, f"nothing reads {name}: give it an effect"
