"""A pipeline of today on the checkpoints that each recorded version left (`tests/upgrade`): nothing doubled or lost.

It is here and not beside the other recorded folders because it shares the Spark session of these tests.
"""

from __future__ import annotations

import pytest

from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import load_pipelines
from ottla.pipelines.run import PipelineRun
from tests.upgrade import observations as observe
from tests.upgrade.record import RECORDED
from tests.upgrade.scenes import pipeline as scene
from tests.upgrade.started import started, versions
from tests.upgrade.test_folders import check_records

pytestmark = pytest.mark.timeout(600)


def forget_last_commits(checkpoints):
    """As if the driver had died when every output was written and nothing was noted: each query repeats its last batch."""
    forgotten = []
    for commits in sorted(checkpoints.glob("*/*/commits")):
        last = max((one for one in commits.iterdir() if one.name.isdigit()), key=lambda one: int(one.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        forgotten.append(commits.parent.name)
    return forgotten


@pytest.mark.parametrize("version", versions("pipeline"))
def test_a_pipeline_goes_on_at_its_checkpoint(version, spark, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    with started(RECORDED / version / "pipeline.tar.xz", folder) as node:
        check_records(node)
        servers, sent = node.address(), node.manifest["sent"]
        with observe.connected(servers) as cluster:
            assert observe.groups(cluster) == node.manifest["groups"]
        assert scene.outputs(folder, servers) == node.manifest["outputs"]
        monkeypatch.setenv("OTTLA_TEST_OUT", str(folder / "out"))
        assert forget_last_commits(folder / "checkpoints") == [
            "pages",
            "slow",
            "slow.rows.dead-letters",
            "to-parquet",
            "to-sql",
        ]
        scene.add_hits(servers, range(sent, sent + 20))
        (pipeline,) = load_pipelines(str(folder / "hits.py"))
        settings = RunSettings(bootstrap_servers=servers, checkpoints=str(folder / "checkpoints"))
        PipelineRun(spark, pipeline, settings).once()
        assert scene.outputs(folder, servers) == scene.expected(sent + 20)
