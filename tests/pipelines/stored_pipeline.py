"""A pipeline with a plain step and an aggregation, for checkpoints on a store: `format` names its topics."""

STORED_PIPELINE = """
from ottla.pipelines import Pipeline, topic
p = Pipeline("stored")
N = topic("{source}", value="json", schema="n long")
@p.step(reads={{"rows": N}}, writes=topic("{target}", value="json"))
def copy(rows):
    return rows.select("n")
@p.step(reads={{"rows": N}}, writes=topic("{counts}", value="json", key="odd"), output_mode="update")
def counts(rows):
    return rows.groupBy((rows.n % 2).alias("odd")).count()
"""
