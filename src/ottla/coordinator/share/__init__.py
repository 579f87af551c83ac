"""Share groups' delivery state (KIP-932): the coordinator that keeps it in `__share_group_state`, and the state itself.

`records` to `coordinator` are the topic's side; `in_flight` is what a partition's leader has in memory.
"""
