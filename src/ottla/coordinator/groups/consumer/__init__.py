"""Consumer groups (KIP-848): the coordinator assigns, members report what they own and follow step by step.

`group` and `members` are the nouns, `records` and `replay` their durable form, `heartbeat` the request; `target` and
`assignors/` decide who should have what, `reconciliation` what a member may have now; `migration` and `classic_members`
let members of the classic protocol live in the same group.
"""
