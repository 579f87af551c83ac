"""A folder that a different user made in the directory for temporary files holds nothing that we run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ottla.model.user_error import UserError
from ottla.pipelines import session, supervisor
from ottla.system.owned_folders import private_temporary_folder, stranger_who_writes

NOBODY = 65534


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _foreign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder belongs to a different user: for real if we are root, else by a changed idea of who we are."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)


def test_the_folder_is_the_same_for_every_process_of_this_user(temporary: Path) -> None:
    folder = Path(private_temporary_folder("ottla-x"))
    assert folder == temporary / f"ottla-x-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_temporary_folder("ottla-x") == str(folder)


@pytest.mark.parametrize("make", ["foreign", "open", "link", "file"])
def test_a_folder_that_others_control_is_not_used(make: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = temporary / f"ottla-{make}-{NOBODY if make == 'foreign' and os.geteuid() else os.geteuid()}"
    if make == "file":
        planted.write_text("")
    elif make == "link":
        (temporary / "elsewhere").mkdir()
        planted.symlink_to(temporary / "elsewhere")
    else:
        planted.mkdir()
        planted.chmod(0o777 if make == "open" else 0o755)
    if make == "foreign":
        _foreign(planted, monkeypatch)
    folder = Path(private_temporary_folder(f"ottla-{make}"))
    assert folder != planted
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_temporary_folder(f"ottla-{make}") == str(folder)


def test_what_sparks_workers_run_is_not_in_a_planted_folder(temporary: Path) -> None:
    planted = temporary / f"ottla-python-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    script = Path(session._worker_python())
    assert planted not in script.parents
    assert not list(planted.iterdir())
    done = subprocess.run([script, "-c", "print(6 * 7)"], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "42\n", done.stderr


def test_a_folder_of_this_process_alone_is_removed_at_its_end(tmp_path: Path) -> None:
    planted = tmp_path / f"ottla-x-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    code = "from ottla.system.owned_folders import private_temporary_folder as f; print(f('ottla-x'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() != str(planted)
    assert list(tmp_path.iterdir()) == [planted]


def test_the_state_of_pipelines_is_not_where_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    with pytest.raises(UserError, match=r"other users can write to the directory \(mode 0777\); use `--state`"):
        supervisor.state_directory(str(state))
    state.chmod(0o775)  # a group of one's own is usual
    assert supervisor.state_directory(str(state)) == str(state)
    _foreign(state, monkeypatch)
    if state.stat().st_uid:
        assert stranger_who_writes(str(state)) == f"the directory belongs to user {state.stat().st_uid}"


@pytest.mark.parametrize("pid", [-1, 0, "1", None, 1.5])
def test_a_definition_cannot_name_a_group_of_processes(
    pid: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` would send SIGTERM to every process of this user for -1."""
    killed: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *words: killed.append(words))
    supervisor.write_json(str(tmp_path / "shop.json"), {"name": "shop", "pid": pid})
    supervisor.write_json(str(tmp_path / "shop.status.json"), {"name": "shop", "state": "running"})
    assert supervisor.stop(str(tmp_path), "shop", 0) is False
    assert killed == []
