"""The quorum: Kafka's metadata log and its snapshots on disk, elections, and commits.

Nothing here does network I/O or reads a clock by itself: `driver.py` runs a `RaftNode` through the seams of `ottla.env`.
Every change of role is listed in `transitions.py`.
"""
