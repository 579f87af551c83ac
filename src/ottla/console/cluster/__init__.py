"""What the console knows of the cluster, asked over the wire."""
