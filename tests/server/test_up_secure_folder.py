"""The folder of `ottla up --secure` after something happened to its files."""

from __future__ import annotations

import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from ottla.server.errors import StartupError
from ottla.server.up import certificates
from ottla.server.up.secured import SecureFolder
from ottla.server.up.single import up

ADDRESS = "127.0.0.1:9092"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    SecureFolder(tmp_path).prepare("first.example", ADDRESS)
    return tmp_path / "secure"


def prepare(folder: Path, host: str = "127.0.0.1", address: str = ADDRESS) -> None:
    SecureFolder(folder.parent).prepare(host, address)


def names(folder: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            del tz
            return datetime.now(UTC) + timedelta(days=days)

    monkeypatch.setattr(certificates, "datetime", Later)


def signs(folder: Path) -> bool:
    """Whether the certificate of the servers is signed by the authority of the folder."""
    issuer = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    x509.load_pem_x509_certificate((folder / "server.pem").read_bytes()).verify_directly_issued_by(issuer)
    ssl.create_default_context(cafile=str(folder / "ca.pem")).load_cert_chain(folder / "server.pem")
    return True


def test_a_renewed_certificate_keeps_the_names_of_the_first_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "server.pem").read_bytes()
    later(monkeypatch, 800)
    prepare(folder)
    assert (folder / "server.pem").read_bytes() != before
    assert "first.example" in names(folder)
    assert signs(folder)


def test_a_name_that_the_operator_advertises_later_is_in_the_certificate(folder: Path) -> None:
    prepare(folder, address="second.example:9092")
    assert {"first.example", "second.example", "localhost"} <= names(folder)
    before = (folder / "server.pem").read_bytes()
    prepare(folder, address="second.example:9092")
    assert (folder / "server.pem").read_bytes() == before


def test_an_authority_whose_key_is_kept_elsewhere_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: (folder / name).read_bytes() for name in ("ca.pem", "server.pem")}
    (folder / "ca.key").unlink()
    prepare(folder)
    assert {name: (folder / name).read_bytes() for name in before} == before
    later(monkeypatch, 800)
    with pytest.raises(StartupError, match=r"ca\.key is missing"):
        prepare(folder)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_key_of_a_different_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    SecureFolder(tmp_path / "different").prepare("127.0.0.1", ADDRESS)
    (folder / "ca.key").write_bytes((tmp_path / "different/secure/ca.key").read_bytes())
    (folder / "server.pem").unlink()
    with pytest.raises(StartupError, match=r"ca\.key is not the key of the authority"):
        prepare(folder)


def test_a_certificate_of_the_operator_stays(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.up.certificates.socket.gethostname", lambda: "different")
    SecureFolder(tmp_path / "different").prepare("127.0.0.1", ADDRESS)
    own = (tmp_path / "different/secure/server.pem").read_bytes()
    (folder / "server.pem").write_bytes(own)
    later(monkeypatch, 800)
    prepare(folder)
    assert (folder / "server.pem").read_bytes() == own


@pytest.mark.parametrize(
    "gone", [["ca.pem", "server.pem"], ["ca.pem"], ["server.pem"], ["ca.pem", "ca.key"], ["users"]]
)
def test_files_that_a_kill_left_out_are_made(folder: Path, gone: list[str]) -> None:
    for name in gone:
        (folder / name).unlink()
    (folder / "ca.pem.new").write_bytes(b"half")
    prepare(folder)
    assert signs(folder)
    assert (folder / "users").exists()


def test_an_empty_password_is_refused(folder: Path) -> None:
    (folder / "password").write_bytes(b"\n")
    (folder / "users").unlink()
    with pytest.raises(StartupError, match="password is empty"):
        prepare(folder)
    assert not (folder / "users").exists()


def test_a_folder_that_somebody_else_prepared_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(StartupError, match="of a different user"):
        prepare(folder)


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "log").mkdir()
    (tmp_path / "log/secure").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match="is a link"):
        SecureFolder(tmp_path / "log").prepare("127.0.0.1", ADDRESS)


def test_a_start_on_a_taken_port_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert up(tmp_path / "log", None, port, secure=True) == 1
        assert "choose another --port" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []
        SecureFolder(tmp_path / "log").prepare("first.example", ADDRESS)
        password = (tmp_path / "log/secure/password").read_text()
        assert up(tmp_path / "log", None, port, secure=True) == 1
    assert (tmp_path / "log/secure/password").read_text() == password
