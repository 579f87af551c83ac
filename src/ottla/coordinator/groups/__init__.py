"""Groups and their offsets: the state machine behind one partition of `__consumer_offsets`.

`coordinator` has a method for each request: it finds the shard and runs the event on a part of `machine`. `group` is
what all kinds of groups have in common; each kind is a folder (`classic`, `consumer`, `share`, `streams`). Offsets,
listing and expiry serve every kind.
"""
