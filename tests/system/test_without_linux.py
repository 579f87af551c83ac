"""The single node and the test kit without anything that only Linux has: `os.fdatasync`, epoll, /proc and the rest.

Run for themselves, the tests below start the run; inside of it, they check that the interpreters lack what they should.
"""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.support.without_linux import NAMES, SOFT_OPEN_FILES, run_pytest

ROOT = Path(__file__).resolve().parents[2]
INSIDE = NAMES in os.environ
QUICK = [
    "tests/system",
    "tests/server/test_testing_broker.py",
    "tests/cli/test_first_hour.py",
    "tests/security/test_key_files.py",
    "tests/security/test_tls.py",
    "tests/security/test_encryption.py",
    "tests/server/test_monitoring.py::test_counts_are_true",
    "tests/server/test_monitoring.py::test_every_metric_is_in_the_table_and_used",
    "tests/server/test_startup.py::test_up_makes_finds_and_stops",
    "tests/server/test_startup.py::test_a_signal_is_a_clean_and_quick_shutdown",
    "tests/server/test_startup.py::test_a_second_server_on_the_same_directory",
    "tests/registry/test_up.py::test_up_starts_a_registry_and_stops_it",
    "tests/runtime/test_channel.py",
]
LONG = [
    "tests/cli",
    "tests/connect",
    "tests/console",
    "tests/env",
    "tests/log",
    "tests/raft",
    "tests/registry",
    "tests/runtime",
    "tests/security",
    "tests/server",
    "tests/system",
    "tests/tables",
]


@pytest.mark.skipif(INSIDE, reason="this is the run itself")
@pytest.mark.timeout(600)
def test_a_node_and_the_test_kit_run_without_linux() -> None:
    assert run_pytest(["-n", "0", "-q", "-m", "not soak and not interop", *QUICK], timeout_s=580).returncode == 0


@pytest.mark.soak
@pytest.mark.skipif(INSIDE, reason="this is the run itself")
@pytest.mark.timeout(3600)
def test_the_suites_of_a_single_node_run_without_linux() -> None:
    assert run_pytest(["-n", "2", "-q", "-m", "not soak and not interop", *LONG]).returncode == 0


@pytest.mark.skipif(not INSIDE, reason="only inside of the run")
def test_nothing_of_linux_is_left_in_this_process() -> None:
    for name in ("fdatasync", "posix_fallocate", "posix_fadvise", "memfd_create", "sched_getaffinity", "pidfd_open"):
        assert not hasattr(os, name)
    assert not hasattr(select, "epoll")
    assert not Path("/proc/self/stat").exists()
    with pytest.raises(FileNotFoundError):
        Path("/proc/cpuinfo").read_text()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (SOFT_OPEN_FILES, resource.RLIM_INFINITY)


@pytest.mark.skipif(not INSIDE, reason="only inside of the run")
@pytest.mark.parametrize("environment", [None, {"PATH": os.environ["PATH"]}])
def test_nor_in_a_child_process(environment: dict[str, str] | None) -> None:
    probe = "import os, select; print(hasattr(os, 'fdatasync'), hasattr(select, 'epoll'), os.path.exists('/proc'))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["False", "False", "False"]


@pytest.mark.skipif(not INSIDE, reason="only inside of the run")
def test_a_node_syncs_by_full_sync(tmp_path: Path) -> None:
    import sitecustomize

    before = len(sitecustomize.FULL_SYNCS)
    with Broker(directory=tmp_path):
        assert len(sitecustomize.FULL_SYNCS) > before, "the metadata log has its first records"
