"""A whole cluster on virtual time, from one seed: the same raft and controller code over a fake network and fake disks."""
