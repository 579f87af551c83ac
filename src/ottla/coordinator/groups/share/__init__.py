"""Share groups (KIP-932): members, who reads which partitions, and which share-partitions have a state to read from.

The deliveries themselves are not the group's: the leaders of the partitions and the share coordinator have those.
"""
