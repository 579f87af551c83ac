"""Share groups on a broker (KIP-932): sessions of members, share-partitions of the partitions that it leads, and the way
to their state. Nothing here is imported before the first share group.
"""
