"""Groups and their offsets: the state machine behind one partition of `__consumer_offsets`.

`machine` is the whole; `group`, `members` and `protocol_selection` are the nouns; `join`, `sync`, `membership` and
`rebalance` the classic protocol; `offsets` and `listing` the rest of the APIs.
"""
