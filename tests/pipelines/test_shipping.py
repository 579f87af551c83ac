"""What executors elsewhere get: this Ottla and the modules beside the pipeline file, importable from zips alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.model.user_error import UserError
from ottla.pipelines import session, shipping
from ottla.pipelines.carried import carried_function, carried_processor, carried_source
from ottla.pipelines.shipping import ARCHIVE_PYTHON, archive_settings
from ottla.pipelines.submit import main, parser, submitted_remote

IMPORTS = """
import sys
own = sys.argv[1:]
sys.path = own + [path for path in sys.path if not path.endswith("/src")]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
import ottla.pipelines.reader, ottla.pipelines.writer, pyspark_ottla, my_steps, my_package.part
for module in (ottla.pipelines.reader, my_steps, my_package.part):
    assert module.__file__.startswith(tuple(own)), module.__file__
print(my_steps.twice(my_package.part.ONE))
"""


def steps(folder: Path) -> Path:
    (folder / "my_package" / "__pycache__").mkdir(parents=True)
    (folder / "my_package" / "__init__.py").touch()
    (folder / "my_package" / "part.py").write_text("ONE = 1\n")
    (folder / "my_package" / "__pycache__" / "part.py").write_text("no\n")
    (folder / "my_steps.py").write_text("def twice(x):\n    return 2 * x\n")
    (folder / "data.bin").write_bytes(b"no")
    (folder / "not_a_package").mkdir()
    (folder / "not_a_package" / "module.py").write_text("no\n")
    return folder


def test_the_zips_are_enough_to_import_everything(tmp_path):
    zips = [shipping.own_zip(), shipping.folder_zip(str(steps(tmp_path / "job")))]
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS, *zips],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.stdout == "2\n", done.stderr
    with zipfile.ZipFile(zips[1]) as archive:
        assert archive.namelist() == ["my_steps.py", "my_package/__init__.py", "my_package/part.py"]


def test_a_zip_is_named_by_its_content(tmp_path):
    first = shipping.folder_zip(str(steps(tmp_path / "a")))
    assert shipping.folder_zip(str(steps(tmp_path / "b"))) == first
    (tmp_path / "b" / "my_steps.py").write_text("")
    assert shipping.folder_zip(str(tmp_path / "b")) != first
    (tmp_path / "empty").mkdir()
    assert shipping.folder_zip(str(tmp_path / "empty")) is None


def test_a_folder_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "MOST_BYTES", 10)
    with pytest.raises(UserError, match="put the file into a folder of its own"):
        shipping.folder_zip(str(steps(tmp_path / "a")))


def test_words_of_submit(tmp_path):
    with pytest.raises(UserError, match=r"names /nowhere\.tar\.gz, and there is no such file"):
        archive_settings("/nowhere.tar.gz")
    (tmp_path / "e.tar.gz").touch()
    settings = archive_settings(f"{tmp_path}/e.tar.gz")
    assert settings["spark.archives"] == f"{tmp_path}/e.tar.gz#environment"
    assert settings["spark.executorEnv.PATH"].split(":")[0] == "./environment/bin"
    assert "/usr/bin" in settings["spark.executorEnv.PATH"].split(":"), "executors need the commands of the system, too"
    file = tmp_path / "shop.py"
    file.write_text("from ottla.pipelines import Pipeline\na, b = Pipeline('a'), Pipeline('b')\n")
    words = [str(file), "-b", "log:1", "--checkpoints", f"{tmp_path}/c"]
    with pytest.raises(UserError, match="holds a, b: choose one with --name"):
        main(words)
    with pytest.raises(UserError, match="has no pipeline 'c'"):
        main([*words, "--name", "c"])
    with pytest.raises(UserError, match="--conf 'x' is not NAME=VALUE"):
        main([*words, "--conf", "x"])
    assert parser().parse_args(words).once is False


def test_the_address_of_spark_submit_remote():
    parts = {
        "PYSPARK_REMOTE_INIT_CONF_0": '{"spark.app.name":"p","spark.re',
        "PYSPARK_REMOTE_INIT_CONF_1": 'mote":"sc://h:1"}',
    }
    assert submitted_remote({"PYSPARK_REMOTE_INIT_CONF_LEN": "2", **parts}) == "sc://h:1"
    assert submitted_remote({"SPARK_REMOTE": "sc://h:2"}) == "sc://h:2"
    assert submitted_remote({}) is None


def test_an_archive_is_for_a_cluster(tmp_path):
    (tmp_path / "e.tar.gz").touch()
    for master in (None, "local", "local[2]"):
        with pytest.raises(UserError, match="--archive is for executors of a cluster"):
            session.spark(master, archive=f"{tmp_path}/e.tar.gz")


def test_spark_submit_must_run_the_python_of_path(tmp_path, monkeypatch):
    """Its JVM resolves `python3` by PATH on the driver's machine, and runs already."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PYSPARK_PYTHON", "before")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        UserError, match=f"it is None, and spark-submit runs .* Put {Path(sys.executable).parent} first"
    ):
        session._name_python_of_archive()
    (tmp_path / "python3").write_text("#!/bin/sh\n")
    (tmp_path / "python3").chmod(0o755)
    with pytest.raises(UserError, match=f"it is {tmp_path}/python3"):
        session._name_python_of_archive()
    assert os.environ["PYSPARK_PYTHON"] == "before"
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{tmp_path}")
    session._name_python_of_archive()
    assert os.environ["PYSPARK_PYTHON"] == "python3"


def test_the_python_of_an_archive_is_looked_for_on_executors_only(tmp_path):
    """With the PATH of executors, a Python process of the driver is another Python than the one that Java has started."""
    (tmp_path / "e.tar.gz").touch()
    path = archive_settings(f"{tmp_path}/e.tar.gz")["spark.executorEnv.PATH"]
    environment = {"PATH": path, "PYTHONHASHSEED": "0"}
    started = [ARCHIVE_PYTHON, "-c", "import sys; print(sys.prefix)"]
    by_java = {"executable": str(Path(sys.prefix, "bin", ARCHIVE_PYTHON)), "capture_output": True, "text": True}
    session._keep_path_of_each_jvm(SimpleNamespace(sparkContext=SimpleNamespace(environment=environment)))
    of_the_jvm = {"PATH": f"{Path(sys.prefix, 'bin')}:{path}"}
    assert subprocess.run(started, env=of_the_jvm | environment, check=True, **by_java).stdout.strip() == sys.prefix


CARRIED = """
import pickle, sys, tempfile
sys.path = [path for path in sys.path if not path.endswith("/src")]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
tempfile.tempdir = sys.argv[1]
try:
    import ottla
except ImportError:
    pass
else:
    raise SystemExit("this Python has an Ottla")
source, table, function, processor = pickle.load(open(sys.argv[2], "rb"))
kind = sys.argv[3]
if kind == "source":
    made = source({"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:9", "includeHeaders": "true"})
    from pyspark.sql.types import StructType
    assert source.name() == "ottla" and "headers" in made.schema(), made.schema()
    from pyspark.cloudpickle import dumps
    of_the_tasks = dumps(made.streamReader(StructType()))
    sys.path = [path for path in sys.path if "ottla-carried" not in path]
    for name in [name for name in sys.modules if name.partition(".")[0] == "ottla"]:
        del sys.modules[name]
    print(type(pickle.loads(of_the_tasks)).__module__)
elif kind == "table":
    from pyspark.cloudpickle import dumps
    from pyspark.sql.types import StructType
    made = table({"path": sys.argv[1] + "/table"})
    writer = dumps(made.writer(StructType().add("n", "long"), False))
    for name in [name for name in sys.modules if name.partition(".")[0] == "ottla"]:
        del sys.modules[name]
    sys.path = [path for path in sys.path if "ottla-carried" not in path]
    print(table.name(), type(pickle.loads(writer)).__module__)
elif kind == "function":
    function("batch", 1)
    function("batch", 2)
else:
    class Handle:
        def getMapState(self, *_):
            class Pages:
                getValue = staticmethod(lambda *_: None)
                containsKey = staticmethod(lambda *_: False)
            return Pages
    processor.init(Handle())
    print(list(processor.handleInputRows((None,), iter([]), None)))
    processor.close()
"""


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("source", "ottla.pipelines.reader"),
        ("table", "ottla-files ottla.pipelines.outputs.writer"),
        ("function", "1 batch 1 zip\n2 batch 2 zip"),
        ("processor", "[]"),
    ],
)
def test_what_a_connect_server_gets_brings_its_ottla_along(tmp_path, kind, output):
    from pyspark.cloudpickle import dumps

    from ottla.pipelines import keyed_state
    from ottla.pipelines.datasource import OttlaDataSource
    from ottla.pipelines.outputs.sources import FilesDataSource

    calls = 0

    def count(batch, number):
        nonlocal calls
        calls += 1
        import ottla.pipelines.positions

        print(calls, batch, number, "zip" if ".zip/" in ottla.pipelines.positions.__file__ else "installed")

    processor = keyed_state.StreamTableJoin(keep_unmatched=True, emit_on_table_change=False)
    sources = carried_source(OttlaDataSource), carried_source(FilesDataSource)
    parts = *sources, carried_function(count), carried_processor(processor)
    (tmp_path / "parts").write_bytes(dumps(parts))
    done = subprocess.run(
        [sys.executable, "-P", "-c", CARRIED, str(tmp_path), str(tmp_path / "parts"), kind],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.strip() == output, done.stderr
    (folder,) = tmp_path.glob("ottla-carried-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 1


SEARCHING = """
import pickle, sys
from pyspark import SparkFiles
SparkFiles._root_directory = sys.argv[1]
sys.path.insert(1, sys.argv[1] + "/" + sys.argv[3])
for number in range(2):
    print(pickle.load(open(sys.argv[2], "rb"))[0](4))
print(sum(path.endswith(sys.argv[3]) for path in sys.path))
"""


@pytest.mark.parametrize("below", ["", "streaming_job"])
def test_what_a_connect_client_sends_finds_the_files_of_its_session(tmp_path, below, monkeypatch):
    """As workers of streaming queries see them: one folder too high, or in a folder that does not exist."""
    from pyspark.serializers import CloudPickleSerializer

    from ottla.pipelines.carried import search_session_files

    monkeypatch.setattr(CloudPickleSerializer, "dumps", CloudPickleSerializer.dumps)
    path = Path(shipping.folder_zip(str(steps(tmp_path / "job"))))
    session_files = tmp_path / "files" / "5e55"
    session_files.mkdir(parents=True)
    shutil.copy(path, session_files)
    monkeypatch.syspath_prepend(str(tmp_path / "job"))
    import my_steps

    search_session_files(["a.zip"])
    search_session_files([path.name])
    (tmp_path / "sent").write_bytes(CloudPickleSerializer().dumps((my_steps.twice, "long")))
    monkeypatch.delitem(sys.modules, "my_steps")
    done = subprocess.run(
        [sys.executable, "-P", "-c", SEARCHING, str(tmp_path / "files" / below), str(tmp_path / "sent"), path.name],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "8\n8\n2\n", done.stderr


def test_a_folder_of_others_is_not_unpacked_into(tmp_path):
    from pyspark.cloudpickle import dumps

    (tmp_path / f"ottla-carried-{os.getuid()}").mkdir()
    (tmp_path / f"ottla-carried-{os.getuid()}").chmod(0o777)
    (tmp_path / "parts").write_bytes(dumps((None, None, carried_function(print), None)))
    done = subprocess.run(
        [sys.executable, "-P", "-c", CARRIED, str(tmp_path), str(tmp_path / "parts"), "function"],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert "is not a folder that only this user can write" in done.stderr


def test_a_run_loads_no_data_source():
    """PySpark 4.0 has no DataSourceArrowWriter, and runs pipelines through Spark's own connector."""
    program = (
        "import sys; import ottla.pipelines.submit, ottla.pipelines.joins\n"
        "print(sorted(sys.modules.keys() & {'ottla.pipelines.' + name for name in ('writer', 'reader', 'datasource', "
        "'outputs.writer', 'outputs.sources')}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_spark_submit_runs_a_file_whose_modules_only_the_driver_has(ottla_server, tmp_path):
    """local-cluster: executors are processes of their own, with a working folder and a path of modules of their own."""
    import pyspark

    import ottla.pipelines.submit as program
    from ottla.pipelines.session import use_java
    from ottla.tables.query import topic_table
    from tests.pipelines.conftest import Topics

    use_java()
    topics = Topics(ottla_server)
    source, target = topics.new("shipped", 2), topics.new("shipped-out", 2)
    topics.send(source, [(None, b"%d" % n) for n in range(50)])
    job = steps(tmp_path / "job")
    (job / "job.py").write_text(
        "import my_steps\n"
        "from pyspark.sql.functions import udf\n"
        "from ottla.pipelines import Pipeline, topic\n"
        "p = Pipeline('shipped')\n"
        f"@p.step(reads={{'rows': topic('{source}', value='text')}}, writes=topic('{target}', value='text'))\n"
        "def double(rows):\n"
        "    return rows.select(udf(lambda n: str(my_steps.twice(int(n))))('value').alias('value'))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "OTTLA_STEPS_PATH"}}
    for run in (1, 2):
        done = subprocess.run(
            [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]",
             "--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false", "--driver-memory", "768m",
             program.__file__, str(job / "job.py"), "-b", ottla_server.bootstrap_servers,
             "--checkpoints", f"file://{tmp_path}/c", "--once"],
            capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
            env=environment | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        rows = topic_table({"bootstrap.servers": ottla_server.bootstrap_servers}, target).to_pylist()
        assert sorted(int(row["value"]) for row in rows) == [2 * n for n in range(50)], f"after run {run}"
