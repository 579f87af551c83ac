"""Installs a hashed lock into `.venv`, with the standard library only: `python tools/set_up.py LOCK VENV [--editable]`.

uv installs, because uv needs a quarter of pip's CPU time and shows its progress. Without uv on the PATH, pip installs the
version that the lock of the developers names. Where uv fails, pip installs everything, and a line reports that.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEVELOPERS_LOCK = ROOT / "requirements-dev.lock"
PIP = ("-m", "pip", "--disable-pip-version-check")
# uv does not read pip's settings: an index or a folder of wheels of this machine is handed over.
HANDED_OVER = {"index-url": "--index-url", "extra-index-url": "--extra-index-url", "find-links": "--find-links"}


class SetUp:
    def __init__(self, lock: Path, environment: Path, *, editable: bool) -> None:
        self._lock = lock
        self._python = environment / "bin" / "python"
        self._editable = editable
        self._began = time.monotonic()

    def run(self) -> None:
        self._report("the installer uv")
        if subprocess.run([str(self._python), *PIP, "--version"], capture_output=True, check=False).returncode:
            subprocess.run([str(self._python), "-m", "ensurepip"], check=True)
        uv = self._uv()
        self._report(f"the packages of {self._lock.name}")
        install = ["--require-hashes", "-r", str(self._lock)]
        if uv is None or not self._with_uv(uv, install):
            self._pip("install", *install)
        self._report("Ottla itself")
        if self._editable:
            self._pip("install", "-q", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        else:
            self._link()
        self._report("done")

    def _uv(self) -> str | None:
        """uv of the PATH or of the environment; None if the installation fails."""
        own = self._python.with_name("uv")
        available = shutil.which("uv") or (str(own) if own.exists() else None)
        if available:
            return available
        with tempfile.NamedTemporaryFile("w", suffix=".lock") as part:
            part.write(block_of("uv", DEVELOPERS_LOCK.read_text(encoding="utf-8")))
            part.flush()
            command = [str(self._python), *PIP, "install", "-q", "--require-hashes", "--no-deps", "-r", part.name]
            failed = subprocess.run(command, check=False).returncode
        return None if failed else str(own)

    def _with_uv(self, uv: str, install: list[str]) -> bool:
        command = [uv, "pip", "install", "--python", str(self._python), "--compile-bytecode"]
        if subprocess.run([*command, *self._pip_settings(), *install], check=False).returncode == 0:
            return True
        self._report("uv has failed, see above; pip installs the same lock")
        return False

    def _pip_settings(self) -> list[str]:
        asked = [str(self._python), *PIP, "config", "list"]
        listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        options = []
        for name, value in re.findall(r"^[\w:]+\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
            if name in HANDED_OVER:
                options += [
                    word for address in value.replace("\\n", " ").split() for word in (HANDED_OVER[name], address)
                ]
        return options

    def _pip(self, *words: str) -> None:
        subprocess.run([str(self._python), *PIP, *words], check=True)

    def _link(self) -> None:
        """Without the build tools of the developers' lock: a path file, which the editable installation replaces."""
        asked = [str(self._python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        folder = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        Path(folder, "ottla-source.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")

    def _report(self, step: str) -> None:
        print(f"set-up, {time.monotonic() - self._began:3.0f} s: {step}", flush=True)


def block_of(name: str, lock: str) -> str:
    """The lines of one distribution with its hashes."""
    match = re.search(rf"^{re.escape(name)}==.*?(?=^[A-Za-z0-9]|\Z)", lock, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError(f"the lock does not name {name}")
    return match[0]


def main() -> int:
    parser = argparse.ArgumentParser(description="Installs a hashed lock.")
    parser.add_argument("lock", type=Path)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--editable", action="store_true", help="install Ottla itself editable, with its commands")
    arguments = parser.parse_args()
    try:
        SetUp(arguments.lock, Path.cwd() / arguments.environment, editable=arguments.editable).run()
    except subprocess.CalledProcessError as failure:
        print(f"set-up failed: {' '.join(map(str, failure.cmd))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
