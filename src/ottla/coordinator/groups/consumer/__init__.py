"""Consumer groups (KIP-848): the coordinator assigns, members report what they own and follow step by step.

`group` and `members` are the nouns, `group_records` and `replay` their durable form, `heartbeat` is the request.
`target` and `assignors/` compute the target assignment; `reconciliation` computes what a member may have now.
`migration` and `classic_members` serve members of the classic protocol in the same group.
"""
