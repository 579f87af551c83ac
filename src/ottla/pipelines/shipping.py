"""What executors on other machines need to run a pipeline: this Ottla, the modules beside the pipeline file, more files.

Each is a zip, named by its content, that Spark distributes. Packages with compiled parts (pyarrow, confluent-kafka) cannot
be imported from a zip: they are installed where the executors run, or come as an archive of an environment.

Spark starts the Python of one name on the driver's machine and on executors. With an archive that name is `python3`, which
the PATH of executors resolves into the unpacked archive. A path such as `./environment/bin/python3` would need the unpacked
archive in the working directory of the driver.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import ottla
from ottla.model.user_error import UserError
from ottla.system.owned_folders import private_temporary_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 50_000_000
_SUFFIXES = (".py", ".json", ".proto")
_OWN_PACKAGES = (
    "ottla",
    "pyspark_ottla",
    "pyspark_ottla_delta",
    "pyspark_ottla_files",
    "pyspark_ottla_iceberg",
    "pyspark_ottla_sql",
)
ARCHIVE_PYTHON = "python3"
_ENVIRONMENT = "environment"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Equal files give equal zips."""


def ship(session: SparkSession, folders: Iterable[str], py_files: Sequence[str] = ()) -> None:
    from pyspark.sql.utils import is_remote

    paths = [own_zip(), *[zip_ for folder in folders if (zip_ := folder_zip(folder))], *map(_existing, py_files)]
    for path in paths:
        _add(session, path)
    if is_remote():
        from ottla.pipelines.carried import search_session_files  # which needs this module

        search_session_files(map(os.path.basename, paths))


def archive_settings(archive: str | None) -> dict[str, str]:
    """Executors unpack the environment into their working folder and run its Python, which the driver names ARCHIVE_PYTHON."""
    if archive is None:
        return {}
    return {"spark.archives": _unpacked(archive), "spark.executorEnv.PATH": f"./{_ENVIRONMENT}/bin:{_PATH}"}


def ship_archive(session: SparkSession, archive: str) -> None:
    """To the executors of a Spark Connect server, for this session only."""
    session.addArtifacts(_unpacked(archive), archive=True)
    session.conf.set("spark.sql.execution.pyspark.python", f"./{_ENVIRONMENT}/bin/{ARCHIVE_PYTHON}")


def _unpacked(archive: str) -> str:
    if "://" not in archive and not os.path.isfile(archive):
        raise UserError(f"--archive names {archive}, and there is no such file")
    return f"{archive if '://' in archive else os.path.abspath(archive)}#{_ENVIRONMENT}"


def own_zip() -> str:
    root = os.path.dirname(os.path.dirname(os.path.abspath(ottla.__file__)))
    return _zipped("ottla", root, (path for name in _OWN_PACKAGES for path in _package(root, name)))


def folder_zip(folder: str) -> str | None:
    """The modules and packages of a pipeline file's folder; None if there are none."""
    with os.scandir(folder) as entries:
        names = sorted((entry.name, entry.is_dir()) for entry in entries)
    modules = [os.path.join(folder, name) for name, is_folder in names if not is_folder and name.endswith(".py")]
    packages = [
        name for name, is_folder in names if is_folder and os.path.exists(os.path.join(folder, name, "__init__.py"))
    ]
    paths = [*modules, *[path for name in packages for path in _package(folder, name)]]
    return _zipped("steps", folder, paths) if paths else None


def _package(root: str, name: str) -> Iterator[str]:
    for folder, below, files in os.walk(os.path.join(root, name)):
        below[:] = sorted(part for part in below if part != "__pycache__")
        yield from (os.path.join(folder, file) for file in sorted(files) if file.endswith(_SUFFIXES))


def _zipped(stem: str, root: str, paths: Iterable[str]) -> str:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        size = 0
        for path in paths:
            size += os.path.getsize(path)
            if size > MOST_BYTES:
                raise UserError(
                    f"the modules beside the pipeline file in {root} have more than {MOST_BYTES // 1_000_000} MB: put "
                    "the file into a folder of its own"
                )
            with open(path, "rb") as file:
                member = zipfile.ZipInfo(os.path.relpath(path, root), _EPOCH)
                member.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(member, file.read())
    name = f"{stem}-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.zip"
    target = os.path.join(private_temporary_folder("ottla-shipping"), name)
    if not os.path.exists(target):
        with open(f"{target}.{os.getpid()}", "wb") as file:
            file.write(content.getvalue())
        os.replace(f"{target}.{os.getpid()}", target)
    return target


def _existing(path: str) -> str:
    if not os.path.isfile(path):
        raise UserError(f"--py-files names {path}, and there is no such file")
    return os.path.abspath(path)


def _add(session: SparkSession, path: str) -> None:
    from pyspark.sql.utils import is_remote

    if is_remote():
        session.addArtifacts(path, pyfile=True)
    else:
        session.sparkContext.addPyFile(path)
