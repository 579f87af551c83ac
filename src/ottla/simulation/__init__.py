"""A whole cluster on virtual time, from one seed: real raft, controller, replication and log on fake networks and disks."""
