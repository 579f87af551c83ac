"""`ottla backup`: the content of a cluster as files, and back, over the wire alone."""
