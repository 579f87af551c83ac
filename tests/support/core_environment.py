"""An environment with what `pip install ottla` brings and nothing else, made of links to what is installed here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.distributions import brought_by

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
            os.symlink(installed.locate_file(top), packages / top)
    (packages / "ottla.pth").write_text(f"{ROOT / 'src'}\n")
    return folder / "bin" / "python"
