"""The coordinators: state machines over an internal topic, one shard for each partition of the topic.

`shards` opens and closes the shards of a node, `runtime` runs the events of a shard. `groups`, `transactions` and
`share` each have a `coordinator`, which the handlers call, and a `machine`, which decides. Nothing here imports
asyncio: a caller passes a waiter, and the shard calls the waiter with the answer.
"""
