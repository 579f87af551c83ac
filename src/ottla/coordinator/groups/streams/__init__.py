"""Streams groups (KIP-1071): one application of Kafka Streams, whose tasks the coordinator hands out.

A heartbeat goes: `validation` -> `heartbeat` -> `rebalance` (topology, group epoch, `target` with the `assignor`,
`reconciliation` of this member) -> records. `replay` alone changes a group.
"""
