"""An environment with what `pip install ottla` brings and nothing else, made of links to what is installed here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from tools.distributions import brought_by

from tests.support.ports import free_ports

START_S = 120
ROOT = Path(__file__).resolve().parents[2]


def core_environment(folder: Path) -> Path:
    """The Python of a new virtual environment in `folder`."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120, capture_output=True
    )
    packages = next(folder.glob("lib/python*/site-packages"))
    for name, installed in brought_by().items():
        tops = {path.parts[0] for path in installed.files or () if path.parts[0] not in {"..", "__pycache__"}}
        if not tops:
            raise FileNotFoundError(f"the metadata of {name} lists no files")
        for top in tops - {link.name for link in packages.iterdir()}:
            (packages / top).symlink_to(str(installed.locate_file(top)))
    (packages / "ottla.pth").write_text(f"{ROOT / 'src'}\n")
    return folder / "bin" / "python"


@dataclass
class Core:
    """The Python of an environment, and the ports of the `ottla up` that runs in the environment."""

    python: Path
    folder: Path
    port: int = 0
    registry: int = 0
    console: int = 0

    def run(self, *words: str, text: str = "", timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), "-m", *words], input=text, capture_output=True, text=True, timeout=timeout_s,
            cwd=self.folder, env=self.environment(), check=False,
        )  # fmt: skip

    def ottla(self, *words: str, text: str = "") -> str:
        done = self.run("ottla", *words, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str) -> str:
        done = self.run("ottla", *words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return clean | {"OTTLA_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.port}", "HOME": str(self.folder)}

    @contextmanager
    def up(self) -> Iterator[None]:
        self.port, _, _, self.registry, self.console = free_ports(5)
        words = ["--port", self.port, "--registry-port", self.registry, "--console-port", self.console]
        with (self.folder / "log").open("w") as log:
            node = subprocess.Popen(
                [str(self.python), "-m", "ottla", "up", "--dir", "data", *map(str, words)],
                cwd=self.folder, env=self.environment(), stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        try:
            for url in (f"http://127.0.0.1:{self.registry}/subjects", f"http://127.0.0.1:{self.console}/"):
                _wait_for(url, node, self.folder / "log")
            yield
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(60)


def _wait_for(url: str, node: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while True:
        assert node.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except (URLError, OSError) as failure:
            if time.monotonic() > end:
                raise AssertionError(f"{url}: {failure}; {log.read_text()}") from failure
            time.sleep(0.1)
