"""`python -m tests.support.prepare`: fetch what the interop tests need before the clock of any test runs.

Always succeeds; one line says what is there and what the tests will skip.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from tests.support.browser import axe_source, chromium, html_validator
from tests.support.class_archives import make_kafka_archive
from tests.support.kafka_jars import VERSION, Unavailable, fetch
from tests.support.kcat import kcat
from tests.support.oidc_provider import oidc_provider_folder


def _report(name: str, get: Callable[[], object]) -> None:
    try:
        get()
    except Unavailable as reason:
        print(f"interop: {name} tests will skip: {reason}")
    else:
        print(f"interop: {name} is here")


def _in_the_background(name: str, module: str) -> None:
    """What takes minutes to build: a test that needs it waits for the file lock, and says what went wrong."""
    subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    print(f"interop: {name} is here or being built")


if __name__ == "__main__":
    _report(f"Apache Kafka {VERSION}", fetch)
    _report("Apache Kafka's class archive", make_kafka_archive)
    _report("kcat", kcat)
    _report("Chromium", chromium)
    _report("axe-core", axe_source)
    _report("oidc-provider", oidc_provider_folder)
    _in_the_background("versitygw", "tests.support.s3")
    _in_the_background("Spark's class archive", "tests.support.class_archives")
    _report("the Nu HTML validator", html_validator)
