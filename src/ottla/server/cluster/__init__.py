"""This node among the others: its quorum, the way to the active controller, registration, replication, checks of peers."""
