"""`python -m tools.first_hour`: how long a newcomer waits, from the wheel in an empty environment to the first green test.

Three times are printed: the installation (which depends on the network), the first run of a test with a broker, and a second
run of the same test. The first run imports modules whose bytecode pip has compiled; nothing else was started before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools import dist

ROOT = Path(__file__).resolve().parent.parent
TARGET_S = 60
TEST = """
def test_orders(ottla_broker, ottla_topic):
    ottla_broker.produce(ottla_topic, {"id": 1}, {"id": 2})
    assert [record.value for record in ottla_broker.records(ottla_topic)] == [{"id": 1}, {"id": 2}]
"""


class FirstHourError(Exception):
    """A step has failed: its command and what the command printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstHour:
    install_s: float
    first_test_s: float
    second_test_s: float

    def __str__(self) -> str:
        return (
            f"pip install: {self.install_s:.1f} s; first test with a broker: {self.first_test_s:.1f} s "
            f"(target {TARGET_S} s); the same test again: {self.second_test_s:.1f} s"
        )


def measure(folder: Path) -> FirstHour:
    """Builds the wheel, and does in `folder` what a newcomer does. Raises FirstHourError."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment |= {"HOME": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    dist.build(folder / "dist")
    wheel = next((folder / "dist").glob("*.whl"))
    python = str(folder / "environment" / "bin" / "python")
    project = folder / "project"
    project.mkdir()
    (project / "test_orders.py").write_text(TEST, encoding="utf-8")
    _timed([sys.executable, "-m", "venv", str(folder / "environment")], folder, environment)
    install = _timed([python, "-m", "pip", "install", "-q", str(wheel), "pytest"], folder, environment)
    first, second = (_timed([python, "-m", "pytest", "-q"], project, environment) for _ in range(2))
    return FirstHour(install_s=install, first_test_s=first, second_test_s=second)


def _timed(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FirstHourError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return time.monotonic() - began


def main() -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-first-hour-") as folder:
            measured = measure(Path(folder))
    except (FirstHourError, dist.DistError) as failure:
        print(failure, file=sys.stderr)
        return 1
    print(measured)
    return 0 if measured.first_test_s <= TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
