"""Streams groups (KIP-1071): one application of Kafka Streams, whose tasks the coordinator assigns.

A heartbeat goes: `validation` -> `heartbeat` -> `topology_changes` (topology, group epoch) -> `target` with the
`assignor` -> `reconciliation` of this member -> records. Only `replay` changes a group.
"""
