"""`python -m tests.support.prepare`: fetch what the interop tests need before the clock of any test runs.

Always succeeds; one line says what is there and what the tests will skip.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.browser import axe_source, chromium
from tests.support.kafka_jars import VERSION, Unavailable, fetch
from tests.support.kcat import kcat


def _report(name: str, get: Callable[[], object]) -> None:
    try:
        get()
    except Unavailable as reason:
        print(f"interop: {name} tests will skip: {reason}")
    else:
        print(f"interop: {name} is here")


if __name__ == "__main__":
    _report(f"Apache Kafka {VERSION}", fetch)
    _report("kcat", kcat)
    _report("Chromium", chromium)
    _report("axe-core", axe_source)
