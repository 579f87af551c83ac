"""The coordinators: state machines over an internal topic, one shard for each of its partitions.

`runtime` loads, runs and unloads the shards; `groups` is the machine behind `__consumer_offsets`;
`group_coordinator` is what the handlers call. Nothing here knows asyncio: whoever asks brings a waiter to be called.
"""
