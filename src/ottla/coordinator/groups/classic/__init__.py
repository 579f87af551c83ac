"""The classic group protocol: the members choose a leader, and the leader assigns.

`group`, `members` and `protocol_selection` are the nouns; `join`, `sync`, `membership` and `rebalance` the protocol.
"""
