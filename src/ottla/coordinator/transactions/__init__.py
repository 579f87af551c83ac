"""The transaction coordinator: the machine behind `__transaction_state`, by noun.

`metadata` is one transactional id and its transitions, `records` is its form in the log. `init_producer_id`,
`partitions`, `end_transaction`, `completion`, `expiry` and `listing` decide. `machine` joins them for one shard and
`coordinator` finds the shard. Markers leave through the seam in `markers`.
"""
