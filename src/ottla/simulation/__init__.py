"""A whole cluster on virtual time, from one seed: the real raft and controller code on fake networks and disks."""
