"""`make setup` installs by uv, hands pip's settings over, and reports when pip has to do the work."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.set_up import SetUp, block_of

LOCK = "a==1 \\\n    --hash=sha256:11\nuv==2 \\\n    --hash=sha256:22\n    --hash=sha256:33\nz==3 \\\n    --hash=sha256:44\n"

PYTHON = """#!/bin/sh
case "$*" in
  *"config list") echo "global.find-links='/wheels'"; echo ":env:.timeout='60'" ;;
  -c*) echo {folder} ;;
  *) echo "python $*" >> {folder}/calls ;;
esac
"""
UV = """#!/bin/sh
echo "uv $*" >> {folder}/calls
exit {code}
"""


def environment(folder: Path, code: int) -> Path:
    binaries = folder / "bin"
    binaries.mkdir()
    for name, text in (("python", PYTHON), ("uv", UV)):
        (binaries / name).write_text(text.format(folder=folder, code=code))
        (binaries / name).chmod(0o755)
    return folder


def test_the_lines_of_one_distribution() -> None:
    assert block_of("uv", LOCK) == "uv==2 \\\n    --hash=sha256:22\n    --hash=sha256:33\n"
    assert block_of("z", LOCK) == "z==3 \\\n    --hash=sha256:44\n"
    with pytest.raises(ValueError, match="does not name b"):
        block_of("b", LOCK)


@pytest.mark.parametrize("code", [0, 2])
def test_uv_installs_and_pip_where_uv_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    SetUp(Path("x.lock"), environment(tmp_path, code), editable=False).run()
    calls = (tmp_path / "calls").read_text().splitlines()
    (by_uv,) = [call for call in calls if call.startswith("uv")]
    assert by_uv.split()[-6:] == ["--compile-bytecode", "--find-links", "/wheels", "--require-hashes", "-r", "x.lock"]
    by_pip = [
        call for call in calls if call.endswith("pip --disable-pip-version-check install --require-hashes -r x.lock")
    ]
    assert len(by_pip) == (1 if code else 0)
    assert ("uv has failed" in capsys.readouterr().out) == bool(code)
    assert (tmp_path / "ottla-source.pth").read_text().endswith("/src\n")
