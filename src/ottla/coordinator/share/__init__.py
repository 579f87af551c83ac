"""Share groups' delivery state (KIP-932): the coordinator that stores it in `__share_group_state`, and the state.

`records` to `coordinator` serve the topic; `in_flight` is the state in the memory of a partition's leader.
"""
