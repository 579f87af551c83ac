"""Groups and their offsets: the state machine behind one partition of `__consumer_offsets`.

`machine` is the whole and `group` what all kinds have in common; each kind is a folder (`classic`, `consumer`); offsets,
listing and expiry ask a group, whatever its kind.
"""
