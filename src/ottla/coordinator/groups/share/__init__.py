"""Share groups (KIP-932): members, their partitions, and which share-partitions have a state.

The leaders of the partitions and the share coordinator store the deliveries, not the group.
"""
