"""The console's view of the cluster, read over the wire."""
