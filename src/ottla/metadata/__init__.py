"""Cluster metadata: the records of `__cluster_metadata`, the image that replaying them gives, deltas and publishing."""
