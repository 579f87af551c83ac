"""`python -m tests.support.without_linux tests/server -n 2`: the exit code is pytest's."""

from __future__ import annotations

import sys

from tests.support.without_linux import run_pytest

sys.exit(run_pytest(sys.argv[1:]).returncode)
