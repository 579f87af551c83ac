"""Whole pipelines to run, to read and to copy: the code behind `ottla example`.

Each folder is an example: `pipeline.py` is a file for `ottla pipeline run`, `feeder.py` makes events from a seed, and
`check.py` computes the results again in plain Python and shows them. `catalogue.py` lists the examples, and `running.py`
runs an example.
"""
