"""`pip install ottla` alone: `ottla up` is whole, and whatever needs an extra names the extra.

The environment has the core's distributions only, by links (`tests/support/core_environment.py`), so that each child
process has them too.
"""

from __future__ import annotations

import http.cookiejar
import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest

from tests.support.core_environment import Core, core_environment

SQL = "pip install 'ottla[sql]'"
SPARK = "pip install 'ottla[spark]'"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    folder = tmp_path_factory.mktemp("core")
    return Core(core_environment(folder / "environment"), folder)


@pytest.fixture(scope="module")
def running(core: Core) -> Iterator[Core]:
    with core.up():
        yield core


def test_the_environment_has_no_extra(core: Core) -> None:
    program = "import importlib.util as u; print([n for n in ('pyarrow', 'duckdb', 'numpy', 'pyspark', 'pytest') if u.find_spec(n)])"
    done = subprocess.run([core.python, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_up_is_whole(running: Core) -> None:
    running.ottla("topic", "create", "orders", "--partitions", "2")
    assert "orders" in running.ottla("topic", "list")
    running.ottla("produce", "orders", text='{"id": 1}\n{"id": 2}\n')
    assert '"id": 2' in running.ottla("consume", "orders", "--from", "beginning", "-n", "2", "-g", "readers")
    assert "readers" in running.ottla("group", "list")
    running.ottla("export", "orders", "orders.jsonl")
    assert len((running.folder / "orders.jsonl").read_text().splitlines()) == 2
    schema = running.folder / "order.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}))
    verb = ("schema", "--url", f"http://127.0.0.1:{running.registry}")
    running.ottla(*verb, "register", "orders-value", str(schema))
    assert "orders-value" in running.ottla(*verb, "list")
    for path in ("/", "/topics/orders", "/groups"):
        with urllib.request.urlopen(f"http://127.0.0.1:{running.console}{path}", timeout=60) as page:
            assert page.status == 200


def test_the_test_kit(core: Core) -> None:
    program = "from ottla.testing import Broker\nwith Broker() as broker: print(broker.bootstrap_servers)"
    done = subprocess.run(
        [core.python, "-c", program], capture_output=True, text=True, timeout=150, cwd=core.folder,
        env=core.environment(), check=False,
    )  # fmt: skip
    assert done.stdout.startswith("127.0.0.1:"), done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sql", "select 1"), f"ottla sql needs pyarrow, which is not installed: {SQL}"),
        (("export", "orders", "o.parquet"), f"o.parquet, a Parquet file, needs pyarrow, which is not installed: {SQL}"),
        (("import", "i.parquet", "orders"), f"i.parquet, a Parquet file, needs pyarrow, which is not installed: {SQL}"),
        (("connect", "run", "c.yaml"), f"ottla connect needs pyarrow, which is not installed: {SQL}"),
        (("pipeline", "run", "p.py"), SPARK),
        (("pipeline", "validate", "p.py"), SPARK),
        (("pipeline", "graph", "p.py"), SPARK),
    ],
)
def test_a_verb_names_its_extra(running: Core, words: tuple[str, ...], message: str) -> None:
    (running.folder / "i.parquet").write_bytes(b"")
    (running.folder / "c.yaml").write_text("name: c\nconnector.class: file-source\nfile: i.parquet\ntopic: t\n")
    (running.folder / "p.py").write_text("from ottla.pipelines import Pipeline\np = Pipeline('p')\n")
    assert message in running.refused(*words)
    assert not (running.folder / "o.parquet").exists()


def test_spark_names_its_extra(core: Core) -> None:
    program = (
        "import ottla.pipelines as p\nfrom ottla.model.user_error import UserError\n"
        "for use in (p.spark, lambda: p.join):\n  try: use()\n  except UserError as e: print(e)"
    )
    done = subprocess.run([core.python, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first == f"ottla.pipelines.spark() needs pyspark, which is not installed: {SPARK}"
    assert second.startswith("ottla.pipelines.join needs py")
    assert second.endswith(SPARK)


def test_the_console_names_its_extra(running: Core) -> None:
    site = f"http://127.0.0.1:{running.console}"
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    page = browser.open(f"{site}/sql", timeout=60).read().decode()
    (token,) = re.findall(r'name="csrf" value="([^"]+)"', page)[:1]
    form = urllib.parse.urlencode({"csrf": token, "query": "select 1"}).encode()
    request = urllib.request.Request(f"{site}/sql", form, {"Origin": site})
    answer = browser.open(request, timeout=60).read().decode()
    assert "SQL over topics needs pyarrow, which is not installed: pip install &#39;ottla[sql]&#39;" in answer
    running.ottla("produce", "exported", text="x\n")
    with pytest.raises(HTTPError) as refused:
        browser.open(f"{site}/topics/exported/export?format=parquet", timeout=60)
    assert "an export to Parquet needs pyarrow" in refused.value.read().decode()
