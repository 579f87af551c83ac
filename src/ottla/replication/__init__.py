"""Partitions as leader and follower: states, ISR, high watermark, and the requests that wait for a commit.

The metadata decides on leaders and replicas; `replicas.py` applies it. All changes of an ISR go through `leader_state.py`
and the controller. Nothing here does network I/O.
"""
